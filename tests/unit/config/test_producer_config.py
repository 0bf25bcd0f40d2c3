"""Valid options and their spellings, and the errors for invalid ones."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy
import pytest

from kprod.config import OPTIONS, ProducerConfig
from kprod.config.table import PROFILES
from kprod.errors import ConfigError, KprodError

ACCEPTED: list[tuple[str, Any, str, Any]] = [
    ("acks", "all", "acks", -1),
    ("acks", "-1", "acks", -1),
    ("request.required.acks", 0, "acks", 0),
    ("partitioner.class", min, "partitioner", min),
    ("partitioner", None, "partitioner", "default"),
    ("partitioner", "murmur2_random", "partitioner", "default"),
    ("partitioner", "consistent_random", "partitioner", "crc32"),
    ("metadata.recovery.strategy", "NONE", "metadata_recovery_strategy", "none"),
    ("security.protocol", "plaintext", "security_protocol", "PLAINTEXT"),
    ("metadata.broker.list", "a:1", "bootstrap_servers", (("a", 1),)),
    ("interceptor.classes", [], "interceptors", ()),
    ("max_batch_size", 7000, "batch_size", 7000),
    ("batch_size", 0, "batch_size", 1),
    ("queue.buffering.max.ms", 7, "linger_ms", 7),
    ("linger_ms", numpy.int64(7), "linger_ms", 7),
    ("message.timeout.ms", 40_000, "delivery_timeout_ms", 40_000),
    ("retries", float("inf"), "retries", 2**31 - 1),
    ("compression.codec", "none", "compression_type", None),
    ("compression_type", "ZSTD", "compression_type", "zstd"),
    ("max.in.flight", 2, "max_in_flight_requests_per_connection", 2),
    ("topic.metadata.refresh.interval.ms", 9, "metadata_max_age_ms", 9),
    ("socket.send.buffer.bytes", 0, "send_buffer_bytes", None),
    ("send_buffer_bytes", -1, "send_buffer_bytes", None),
    ("value_serializer", "json", "value_serializer", "json"),
]
"""Spelling, given value, option name and resulting value."""


def configured(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options(options)


def test_no_spelling_belongs_to_two_options() -> None:
    spellings = [spelling for option in OPTIONS.values() for spelling in option.spellings]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_default_is_accepted_when_given(name: str) -> None:
    options = {name: OPTIONS[name].default, "client_id": "x"}
    assert configured(**options) == configured(client_id="x")


@pytest.mark.parametrize(("spelling", "given", "name", "kept"), ACCEPTED)
def test_options_can_be_spelled_as_in_every_client(
    spelling: str, given: Any, name: str, kept: Any
) -> None:
    found = getattr(configured(**{"enable_idempotence": False, spelling: given}), name)
    assert found == kept
    assert type(found) is type(kept)


ODD_NAMES: list[tuple[Mapping[Any, Any], str]] = [
    ({"batch_size": 1, "batch.size": 1}, 'is set twice: "batch_size" and "batch.size"'),
    ({"queue.buffering.max.ms": -1}, r'^linger_ms \(given as "queue.buffering.max.ms"\): '),
    *(
        ({unknown: 1}, rf"^unknown option '{unknown}'; did you mean '{meant}'\?$")
        for unknown, meant in {
            "batchsize": "batch_size",
            "BATCH_SIZE": "batch_size",
            "compresion_type": "compression_type",
            "queue.bufering.max.ms": "linger_ms",
        }.items()
    ),
    ({"zzzzzzzz": 1}, r"^unknown option 'zzzzzzzz'$"),
    ({5: 1}, r"an option's name must be text, not 5 \(int\)"),
]


@pytest.mark.parametrize(("options", "words"), ODD_NAMES)
def test_unknown_and_duplicate_names_are_refused(options: Mapping[Any, Any], words: str) -> None:
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


def test_an_ignored_option_gives_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kprod.config"):
        assert configured(selector=object(), client_id="x") == configured(client_id="x")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "option selector is ignored: " in record.getMessage()


@pytest.mark.parametrize("value", [None, ""])
def test_default_client_ids_are_numbered(value: str | None) -> None:
    first, second = configured(client_id=value).client_id, configured().client_id
    assert first.startswith("kprod-producer-")
    assert first != second


# Profiles -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_sets_defaults_of_its_options(name: str) -> None:
    profiled = configured(client_id="x", profile=name)
    plain = configured(client_id="x", **PROFILES[name])
    for option in OPTIONS.keys() - {"profile"}:
        assert getattr(profiled, option) == getattr(plain, option), option
    for option in PROFILES[name]:
        given = {OPTIONS[option].spellings[-1]: OPTIONS[option].default}
        found = getattr(configured(profile=name, **given), option)
        assert found == getattr(configured(**given), option)


def test_a_profile_is_adjusted_to_explicit_options() -> None:
    assert configured(profile="throughput", max_request_size=200_000).batch_max_size == 200_000
    assert not configured(profile="durable", acks=1).enable_idempotence


MILLISECONDS = [
    name for name in OPTIONS if name.endswith("_ms") or name == "close_timeout_ms_at_exit"
]
NUMBERS = [
    *(*MILLISECONDS, "batch_size", "buffer_memory", "max_request_size", "retries"),
    *("max_in_flight_requests_per_connection", "send_buffer_bytes", "receive_buffer_bytes"),
    *("busy_poll_us", "receive_message_max_bytes", "compression_level"),
]
NOT_NUMBERS = [True, False, "5", "", b"5", 0.5, float("nan"), float("-inf"), 1j, Fraction(5), [5]]


def problem(**options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_options(options)
    assert isinstance(raised.value, KprodError)
    assert isinstance(raised.value, ValueError)
    return str(raised.value)


@pytest.mark.parametrize("name", NUMBERS)
def test_an_integer_option_refuses_other_types_and_ranges(name: str) -> None:
    """Times have the range of an int32."""
    for value in NOT_NUMBERS:
        text = problem(**{name: value})
        assert text.startswith(f"{name}: expected a whole number")
        assert f"{value!r} ({type(value).__name__})" in text
    for value in (-(10**12), 2**63, *([10**12, -1] if name in MILLISECONDS else [])):
        range_and_value = rf"{name}: .* number .*from -?\d+ to \d+.*; got {value} \(int\)"
        assert re.match(range_and_value, problem(**{name: value}))


SWITCH = ("expected True or False; got", [None, 0, 1, "true", "False", numpy.bool_(True)])
SOFTWARE = ("expected letters and digits", ["", "-a", "a.", "a b", "\xe9", "x" * 32768, 1])
CODECS = 'expected None, "gzip", "snappy", "lz4" or "zstd"; got'
REFUSED: dict[str, tuple[str, list[Any]]] = {
    "enable_idempotence": SWITCH,
    "allow_auto_create_topics": SWITCH,
    "partitioner_adaptive_partitioning_enable": SWITCH,
    "partitioner_ignore_keys": SWITCH,
    "acks": ('expected "all" (or -1), 0 or 1; got', [2, -2, "2", "", True, False, 1.0, None, [1]]),
    "compression_type": (CODECS, ["zip", "", 0, 1, True, False, ["gzip"], b"gzip"]),
    "client_id": ("expected text", [1, b"name", True, ["a"]]),
    "client_software_name": SOFTWARE,
    "client_software_version": SOFTWARE,
    "partitioner": ('expected "default", "murmur2", ', ["sticky", "", 3, [hash]]),
    "interceptors": ("expected a list of objects", [object(), "audit", {"a": 1}, [object()]]),
    "profile": ('expected None, "throughput"', ["fast"]),
    "transport": ("expected the name of a transport", [None, "", 3, b"tcp"]),
    "security_protocol": ('expected "PLAINTEXT", "SSL", ', ["TLS", "", None, 3, True]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_error_says_what_an_option_expects(name: str) -> None:
    expected, values = REFUSED[name]
    for value in values:
        assert problem(**{name: value}).startswith(f"{name}: {expected}")


@pytest.mark.parametrize(
    ("codec", "module", "package"),
    [("snappy", "cramjam", "kprod[snappy]"), ("lz4", "lz4", "lz4"), ("zstd", *["zstandard"] * 2)],
)
def test_a_missing_codec_package_is_named(
    codec: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # makes the import fail
    text = problem(compression_type=codec)
    assert f"compression_type='{codec}' needs the package {module}" in text
    assert f"pip install '{package}'" in text


class NeedsInstance:
    """A serializer class that may be passed instead of an instance."""

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return b""


async def encode_later(data: Any) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("JSON", "got 'JSON' (str)"),
        (5, "got 5 (int)"),
        (NeedsInstance, "it is a class: pass an instance"),
        (encode_later, "a coroutine function cannot be used here"),
    ],
)
def test_invalid_serializers_are_refused(value: Any, reason: str) -> None:
    for name in ("key_serializer", "value_serializer"):
        text = problem(**{name: value})
        assert text.startswith(f'{name}: expected "bytes", "str", "json", "int", "int32", "float"')
        assert text.endswith(f", or None; {reason}")


class BrokenRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"linger_ms": 10**5000}, "got <a huge integer> (int)"),
        ({"linger_ms": BrokenRepr()}, "BrokenRepr"),
        ({"client_id": "x" * 32768}, "it has 32768 bytes"),
        ({"client_id": "\ud800"}, "cannot be encoded as UTF-8"),
    ],
    ids=["huge", "broken repr", "long", "no unicode"],
)
def test_values_without_a_usable_repr_are_reported(options: dict[str, Any], words: str) -> None:
    assert words in problem(**options)


def addresses(value: Any) -> tuple[tuple[str, int], ...]:
    return ProducerConfig.from_options({"bootstrap_servers": value}).bootstrap_servers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("kafka", (("kafka", 9092),)),
        ("kafka:65535", (("kafka", 65535),)),
        (" a:1 , b ", (("a", 1), ("b", 9092))),
        (["a:1", "b"], (("a", 1), ("b", 9092))),
        (("a:1", "b:2,c:3"), (("a", 1), ("b", 2), ("c", 3))),
        ("[::1]:9094", (("::1", 9094),)),
        ("[fe80::1%eth0]:9094", (("fe80::1%eth0", 9094),)),
        ("a:1,b:2,a:1", (("a", 1), ("b", 2))),
        ("bücher.example:1", (("bücher.example", 1),)),
        ([("a", 1), ("::1", 2)], (("a", 1), ("::1", 2))),
    ],
)
def test_valid_bootstrap_servers_are_parsed(
    value: Any, expected: tuple[tuple[str, int], ...]
) -> None:
    assert addresses(value) == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "it has an empty address"),
        ("a:1,,b:2", "it has an empty address"),
        ([], "it has no address"),
        *(
            (f"host:{port}", f"'host:{port}' has no port from 1 to 65535")
            for port in ("0", "99999", "999999999999", "", "-1", "90 92", "kafka")
        ),
        ("host:\uff19\uff10\uff19\uff12", "\uff12' has no port from 1 to 65535"),
        *(
            (f"{host}:9092", ":9092' has no valid host name or IP address")
            for host in ("", "ho st", "a/b", "a\x00")
        ),
        ("x" * 254, "has no valid host name or IP address"),
        ("[::1", "'[::1' is not an IPv6 address in brackets"),
        ("[::g]:1", "'[::g]:1' has no valid host name or IP address"),
        ("::1", "'::1': put an IPv6 address in brackets"),
        ("plaintext://host:9092", "'plaintext://host:9092': omit the scheme"),
        (["a:1", 9092], "9092 (int) is not an address"),
        ([("a", True)], "'a:True' has no port from 1 to 65535"),
        (None, "got None"),
        (9092, "got 9092 (int)"),
        ([f"h{n}" for n in range(100_000)], "100000 addresses; a few are enough"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_invalid_bootstrap_servers_are_refused(value: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        addresses(value)
    text = str(raised.value)
    assert text.startswith('bootstrap_servers: expected "host:port"')
    assert reason in text
    assert len(text) < 500


@pytest.mark.parametrize("value", ["user:secret@host:9092", "sasl://user:secret@host:0"])
def test_a_password_in_an_address_is_not_shown(value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        addresses(value)
    assert "secret" not in str(raised.value)
