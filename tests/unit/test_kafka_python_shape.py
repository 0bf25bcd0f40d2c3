"""What is written for kafka-python's producer finds the same names, arguments and options here."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest

from kprod import KafkaProducer, RecordMetadata
from kprod.config import ProducerConfig
from kprod.errors import ConfigError
from kprod_ext.futures import FutureRecordMetadata

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, when it is imported
    import kafka
    from kafka.partitioner import DefaultPartitioner, Partitioner
    from kafka.producer.future import FutureRecordMetadata as TheirFuture
    from kafka.producer.future import RecordMetadata as TheirMetadata

DEFAULTS = kafka.KafkaProducer.DEFAULT_CONFIG
ONLY_THEIRS = {"success", "failure", "rebind", "args", "error_on_callbacks"}
"""Of their futures: the hands of their sender, and of their tests."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_futures_metadata_and_producers_have_the_names_of_theirs() -> None:
    assert public(TheirFuture) - public(FutureRecordMetadata) == ONLY_THEIRS
    assert RecordMetadata._fields == TheirMetadata._fields
    missing = public(kafka.KafkaProducer) - public(KafkaProducer)
    assert missing == {"DEFAULT_CONFIG", "DEPRECATED_CONFIGS", "max_usable_produce_magic"}


@pytest.mark.parametrize("name", ["send", "flush", "partitions_for", "bootstrap_connected"])
def test_calls_have_the_arguments_of_theirs(name: str) -> None:
    theirs, ours = (
        [(found.name, found.default, found.kind) for found in parameters(kind, name)]
        for kind in (kafka.KafkaProducer, KafkaProducer)
    )
    assert ours[: len(theirs)] == theirs
    assert all(default is None for _, default, _ in ours[len(theirs) :])  # those are kprod's own


def parameters(kind: type, name: str) -> list[inspect.Parameter]:
    """Those that a caller passes: all but ``self``, which a compiled method has no name for."""
    return list(inspect.signature(getattr(kind, name)).parameters.values())[1:]


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_each_of_their_defaults_is_taken(name: str) -> None:
    ProducerConfig.from_options({name: DEFAULTS[name]})


class Own(Partitioner):  # type: ignore[misc]
    """A partitioner in the form of kafka-python 3."""

    def partition(self, *_: Any) -> int:
        return 0


def test_their_default_partitioner_is_ours_and_another_needs_another_form() -> None:
    config = ProducerConfig.from_options({"partitioner": DefaultPartitioner()})
    assert config.partitioner == "default"
    with pytest.raises(ConfigError, match=r"partition\(topic, key, \.\.\.\).*pass a callable"):
        ProducerConfig.from_options({"partitioner": Own()})
