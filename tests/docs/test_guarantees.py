"""What the guarantees and migration pages say of errors is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kprod import KafkaProducer, errors
from kprod.config import OPTIONS
from kprod.errors import ERROR_NAMES, MAYBE_WRITTEN, KprodError

DOCS = Path(__file__).parents[2] / "docs"
GUARANTEES = (DOCS / "guarantees.md").read_text()
MIGRATION = (DOCS / "migration.md").read_text()
CLASSES = [
    name
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, KprodError) and found.__name__ == name
]


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "KprodError"])
def test_every_error_is_explained(name: str) -> None:
    assert f"`{name}`" in GUARANTEES


@pytest.mark.parametrize("page", [GUARANTEES, MIGRATION], ids=["guarantees", "migration"])
def test_every_error_of_ours_that_is_named_exists(page: str) -> None:
    theirs = set(re.findall(r"\w+Error", MIGRATION.split("| kafka.errors |")[1].split("\n\n")[0]))
    named = set(re.findall(r"\b[A-Z]\w+Error\b|\bConnectionLost\b", page))
    builtin = {"ValueError", "TypeError", "BufferError", "MemoryError"}
    assert {name for name in named - theirs - builtin if not hasattr(errors, name)} == set()


def test_the_codes_after_which_nobody_knows() -> None:
    [row] = re.findall(r"`BrokerError`, code ([-\d, ]+) or", GUARANTEES)
    assert {int(code) for code in row.split(",")} == MAYBE_WRITTEN


def test_the_symbols_of_brokers_exist() -> None:
    assert set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", GUARANTEES)) <= set(ERROR_NAMES.values())


@pytest.mark.parametrize("page", [GUARANTEES, MIGRATION], ids=["guarantees", "migration"])
def test_options_that_are_named_exist(page: str) -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?:=[^`]*)?`", page))
    methods = set(dir(KafkaProducer)) | {"add_done_callback", "as_concurrent", "error_on_callbacks"}
    theirs = {"send_and_wait", "max_batch_size", "error_cb", "stats_cb", "on_delivery"}
    theirs |= {"api_version", "metric_reporters", "consistent_random", "transactional_id"}
    theirs |= {"bootstrap_timeout_ms", "api_version_auto_timeout_ms", "kafka_client"}
    theirs |= {"throttle_cb", "list_topics", "produce_batch", "create_batch", "send_batch"}
    theirs |= {"send_all", "set_sasl_credentials", "cluster_id", "oauth_cb", "confluent_kafka"}
    theirs |= {"consumer_group_metadata", "buffer_timeout"}
    assert named - methods - theirs <= set(OPTIONS)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("linger_ms", 5),
        ("reconnect_backoff_max_ms", 1000),
        ("delivery_timeout_ms", 120000),
        ("enable_idempotence", True),
        ("acks", "all"),
    ],
)
def test_the_defaults_that_are_compared(name: str, default: object) -> None:
    assert OPTIONS[name].default == default
