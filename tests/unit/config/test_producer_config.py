"""What the configuration holds for options that are right, however they are spelled."""

from __future__ import annotations

import dataclasses
import logging
import pickle
from collections.abc import Mapping
from typing import Any

import numpy
import pytest

from kprod.config import OPTIONS, ProducerConfig
from kprod.errors import ConfigError

OTHER_NAMES = {
    "acks": ("acks", "all", -1),
    "partitioner.class": ("partitioner", min, min),
    "metadata.recovery.strategy": ("metadata_recovery_strategy", "NONE", "none"),
    "security.protocol": ("security_protocol", "plaintext", "PLAINTEXT"),
    "metadata.broker.list": ("bootstrap_servers", "a:1", (("a", 1),)),
    "request.required.acks": ("acks", 0, 0),
    "interceptor.classes": ("interceptors", [], ()),
    "max_batch_size": ("batch_size", 7000, 7000),
    "queue.buffering.max.ms": ("linger_ms", 7, 7),
    "message.timeout.ms": ("delivery_timeout_ms", 40_000, 40_000),
    "message.send.max.retries": ("retries", 3, 3),
    "message.max.bytes": ("max_request_size", 5, 5),
    "compression.codec": ("compression_type", "none", None),
    "max.in.flight": ("max_in_flight_requests_per_connection", 2, 2),
    "topic.metadata.refresh.interval.ms": ("metadata_max_age_ms", 9, 9),
    "socket.send.buffer.bytes": ("send_buffer_bytes", 0, None),
    "receive.message.max.bytes": ("receive_message_max_bytes", 1000, 1000),
}


def configured(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options(options)


def test_the_table_and_the_dataclass_have_the_same_options() -> None:
    assert [field.name for field in dataclasses.fields(ProducerConfig)] == list(OPTIONS)


def test_no_spelling_means_two_options() -> None:
    spellings = [spelling for option in OPTIONS.values() for spelling in option.spellings]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(("spelling", "expected"), OTHER_NAMES.items())
def test_names_of_other_clients(spelling: str, expected: tuple[str, Any, Any]) -> None:
    name, given, kept = expected
    config = ProducerConfig.from_options({"enable_idempotence": False} | {spelling: given})
    assert getattr(config, name) == kept


@pytest.mark.parametrize("name", OPTIONS)
def test_every_default_is_accepted_when_given(name: str) -> None:
    options = {name: OPTIONS[name].default, "client_id": "x"}
    assert configured(**options) == configured(client_id="x")


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("acks", "ALL", -1),
        ("acks", "-1", -1),
        ("compression_type", "ZSTD", "zstd"),
        ("retries", float("inf"), 2**31 - 1),
        ("linger_ms", 5.0, 5),
        ("linger_ms", numpy.int64(7), 7),
        ("batch_size", 0, 1),
        ("send_buffer_bytes", -1, None),
        ("send_buffer_bytes", 4096, 4096),
        ("interceptors", None, ()),
        ("partitioner", None, "default"),
        ("partitioner", "murmur2_random", "default"),
        ("partitioner", "consistent_random", "crc32"),
        ("partitioner", "fnv1a_random", "fnv1a"),
        ("partitioner", "round_robin", "round_robin"),
        ("key_serializer", "bytes", None),
        ("value_serializer", "json", "json"),
        ("topic_options", None, ()),
        ("transport", "memory", "memory"),
    ],
)
def test_values_with_a_meaning(name: str, given: Any, kept: Any) -> None:
    found = getattr(configured(**{"enable_idempotence": False, name: given}), name)
    assert found == kept
    assert type(found) is type(kept)


def test_twice_the_same_option() -> None:
    options = {"batch_size": 1, "batch.size": 1}
    with pytest.raises(
        ConfigError, match=r'batch_size is set twice: "batch_size" and "batch.size"'
    ):
        ProducerConfig.from_options(options)


def test_an_error_shows_the_spelling_that_was_used() -> None:
    with pytest.raises(ConfigError, match=r'^linger_ms \(given as "queue.buffering.max.ms"\): '):
        ProducerConfig.from_options({"queue.buffering.max.ms": -1})


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        configured(linger_ms=-1, acks=5, lingerms=3, ssl_cafile="ca.pem", retries="many")
    text = str(raised.value)
    assert text.startswith("5 problems with the options:")
    for name in ("linger_ms: ", "acks: ", "'lingerms'", "ssl_cafile ", "retries: "):
        assert name in text


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("batchsize", "batch_size"),
        ("bootstrap_server", "bootstrap_servers"),
        ("linger", "linger_ms"),
        ("BATCH_SIZE", "batch_size"),
        ("compresion_type", "compression_type"),
        ("max_in_flight_requests", "max_in_flight_requests_per_connection"),
        ("queue.bufering.max.ms", "linger_ms"),
    ],
)
def test_did_you_mean(unknown: str, meant: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"^unknown option '{unknown}'; did you mean '{meant}'\?$"
    ):
        configured(**{unknown: 1})


def test_an_unknown_option_without_anything_like_it() -> None:
    with pytest.raises(ConfigError, match=r"^unknown option 'zzzzzzzz'$"):
        configured(zzzzzzzz=1)


def test_a_name_that_is_not_text() -> None:
    options: Mapping[Any, Any] = {5: 1}
    with pytest.raises(ConfigError, match=r"an option's name must be text, not 5 \(int\)"):
        ProducerConfig.from_options(options)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.engine.location",
        "ssl_sigalgs_list",
        "sasl.login.class",
        "transaction.two.phase.commit.enable",
        "compression.gzip.level",
    ],
)
def test_options_that_are_not_available_say_so(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        configured(**{name: "hunter2"})
    text = str(raised.value)
    assert text.startswith(f"{name} cannot be used: ")
    assert "unknown" not in text
    assert "hunter2" not in text


def test_a_harmless_option_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kprod.config"):
        assert configured(selector=object(), client_id="x") == configured(client_id="x")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "option selector is ignored: " in record.getMessage()


@pytest.mark.parametrize("value", [None, ""])
def test_client_ids_are_numbered(value: str | None) -> None:
    first, second = configured(client_id=value).client_id, configured().client_id
    assert first.startswith("kprod-producer-")
    assert first != second


def test_it_pickles() -> None:
    config = configured(bootstrap_servers="a:1", value_serializer=str.encode)
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_request_leaves_room_in_its_frame_for_what_surrounds_the_records() -> None:
    largest = 2**31 - 2**24
    assert configured(max_request_size=2**31 - 1).max_request_size == largest
    assert configured(max_request_size=largest).max_request_size == largest
    with pytest.raises(ConfigError, match=f"from 1 to {largest}, or 2147483647"):
        configured(max_request_size=largest + 1)
