"""What the configuration holds for options that are right, however they are spelled."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy
import pytest

from kprod.config import OPTIONS, ProducerConfig
from kprod.config.table import PROFILES
from kprod.errors import ConfigError

TAKEN: list[tuple[str, Any, str, Any]] = [
    ("acks", "all", "acks", -1),
    ("acks", "ALL", "acks", -1),
    ("acks", "-1", "acks", -1),
    ("request.required.acks", 0, "acks", 0),
    ("partitioner.class", min, "partitioner", min),
    ("partitioner", None, "partitioner", "default"),
    ("partitioner", "murmur2_random", "partitioner", "default"),
    ("partitioner", "consistent_random", "partitioner", "crc32"),
    ("partitioner", "fnv1a_random", "partitioner", "fnv1a"),
    ("partitioner", "round_robin", "partitioner", "round_robin"),
    ("metadata.recovery.strategy", "NONE", "metadata_recovery_strategy", "none"),
    ("security.protocol", "plaintext", "security_protocol", "PLAINTEXT"),
    ("metadata.broker.list", "a:1", "bootstrap_servers", (("a", 1),)),
    ("interceptor.classes", [], "interceptors", ()),
    ("interceptors", None, "interceptors", ()),
    ("max_batch_size", 7000, "batch_size", 7000),
    ("batch_size", 0, "batch_size", 1),
    ("queue.buffering.max.ms", 7, "linger_ms", 7),
    ("linger_ms", 5.0, "linger_ms", 5),
    ("linger_ms", numpy.int64(7), "linger_ms", 7),
    ("message.timeout.ms", 40_000, "delivery_timeout_ms", 40_000),
    ("message.send.max.retries", 3, "retries", 3),
    ("retries", float("inf"), "retries", 2**31 - 1),
    ("message.max.bytes", 5, "max_request_size", 5),
    ("compression.codec", "none", "compression_type", None),
    ("compression_type", "ZSTD", "compression_type", "zstd"),
    ("max.in.flight", 2, "max_in_flight_requests_per_connection", 2),
    ("topic.metadata.refresh.interval.ms", 9, "metadata_max_age_ms", 9),
    ("socket.send.buffer.bytes", 0, "send_buffer_bytes", None),
    ("send_buffer_bytes", -1, "send_buffer_bytes", None),
    ("send_buffer_bytes", 4096, "send_buffer_bytes", 4096),
    ("receive.message.max.bytes", 1000, "receive_message_max_bytes", 1000),
    ("key_serializer", "bytes", "key_serializer", None),
    ("value_serializer", "json", "value_serializer", "json"),
    ("topic_options", None, "topic_options", ()),
    ("transport", "memory", "transport", "memory"),
]
"""An option as it is spelled, what it is set to, and what becomes of that."""


def configured(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options(options)


def test_no_spelling_means_two_options() -> None:
    spellings = [spelling for option in OPTIONS.values() for spelling in option.spellings]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_default_is_accepted_when_given(name: str) -> None:
    options = {name: OPTIONS[name].default, "client_id": "x"}
    assert configured(**options) == configured(client_id="x")


@pytest.mark.parametrize(("spelling", "given", "name", "kept"), TAKEN)
def test_options_in_the_words_of_every_client(
    spelling: str, given: Any, name: str, kept: Any
) -> None:
    found = getattr(configured(**{"enable_idempotence": False, spelling: given}), name)
    assert found == kept
    assert type(found) is type(kept)


ODD_NAMES: list[tuple[Mapping[Any, Any], str]] = [
    (
        {"batch_size": 1, "batch.size": 1},
        r'batch_size is set twice: "batch_size" and "batch.size"',
    ),
    ({"queue.buffering.max.ms": -1}, r'^linger_ms \(given as "queue.buffering.max.ms"\): '),
    *(
        ({unknown: 1}, rf"^unknown option '{unknown}'; did you mean '{meant}'\?$")
        for unknown, meant in {
            "batchsize": "batch_size",
            "bootstrap_server": "bootstrap_servers",
            "linger": "linger_ms",
            "BATCH_SIZE": "batch_size",
            "compresion_type": "compression_type",
            "max_in_flight_requests": "max_in_flight_requests_per_connection",
            "queue.bufering.max.ms": "linger_ms",
        }.items()
    ),
    ({"zzzzzzzz": 1}, r"^unknown option 'zzzzzzzz'$"),
    ({5: 1}, r"an option's name must be text, not 5 \(int\)"),
]


@pytest.mark.parametrize(("options", "words"), ODD_NAMES)
def test_names_that_are_no_options(options: Mapping[Any, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ProducerConfig.from_options(options)


def test_all_problems_are_reported_at_once() -> None:
    topics = {"a": {"linger_ms": -1, "acks": 7}, "b": {"lingerms": 1}}
    with pytest.raises(ConfigError) as raised:
        configured(acks=5, lingerms=3, ssl_cafile="ca.pem", retries="many", topic_options=topics)
    text = str(raised.value)
    assert text.startswith("7 problems with the options:")
    for name in ("acks: ", "'lingerms'", "ssl_cafile ", "retries: ", "['a']: ", "['b']: "):
        assert name in text


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


# Profiles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_the_options_it_names_unless_they_are_set(name: str) -> None:
    profiled = configured(client_id="x", profile=name)
    plain = configured(client_id="x", **PROFILES[name])
    for option in OPTIONS.keys() - {"profile"}:
        assert getattr(profiled, option) == getattr(plain, option), option
    for option in PROFILES[name]:
        given = {OPTIONS[option].spellings[-1]: OPTIONS[option].default}
        found = getattr(configured(profile=name, **given), option)
        assert found == getattr(configured(**given), option)


def test_a_profile_gives_in_where_it_is_in_the_way() -> None:
    assert configured(profile="throughput", max_request_size=200_000).batch_max_size == 200_000
    assert not configured(profile="durable", acks=1).enable_idempotence
