"""Every wrong option is a ConfigError that names it, what was given and what is expected."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from typing import Any

import numpy
import pytest

from kprod.config import OPTIONS, ProducerConfig
from kprod.errors import ConfigError, KprodError

MILLISECONDS = [
    name for name in OPTIONS if name.endswith("_ms") or name == "close_timeout_ms_at_exit"
]
NUMBERS = [
    *MILLISECONDS,
    "batch_size",
    "buffer_memory",
    "max_request_size",
    "retries",
    "max_in_flight_requests_per_connection",
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "busy_poll_us",
    "receive_message_max_bytes",
    "compression_level",
]
NOT_NUMBERS = [True, False, "5", "", b"5", 0.5, float("nan"), float("-inf"), 1j, Fraction(5), [5]]


def problem(**options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_options(options)
    assert isinstance(raised.value, KprodError)
    assert isinstance(raised.value, ValueError)
    return str(raised.value)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_option_refuses_what_is_no_number_in_its_range(name: str) -> None:
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
REFUSED: dict[str, tuple[str, list[Any]]] = {
    "enable_idempotence": SWITCH,
    "allow_auto_create_topics": SWITCH,
    "partitioner_adaptive_partitioning_enable": SWITCH,
    "partitioner_ignore_keys": SWITCH,
    "acks": (
        'expected "all" (or -1), 0 or 1; got',
        [2, -2, "2", "none", "", True, False, 1.0, None, [1]],
    ),
    "compression_type": (
        'expected None, "gzip", "snappy", "lz4" or "zstd"; got',
        ["zip", "", 0, 1, True, False, ["gzip"], b"gzip"],
    ),
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
def test_an_option_says_what_it_expects_instead(name: str) -> None:
    expected, values = REFUSED[name]
    for value in values:
        assert problem(**{name: value}).startswith(f"{name}: {expected}")


@pytest.mark.parametrize(
    ("codec", "module", "package"),
    [("snappy", "cramjam", "kprod[snappy]"), ("lz4", "lz4", "lz4"), ("zstd", *["zstandard"] * 2)],
)
def test_codec_that_is_not_installed(
    codec: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # what the import system calls "not there"
    text = problem(compression_type=codec)
    assert f"compression_type='{codec}' needs the package {module}" in text
    assert f"pip install '{package}'" in text


class NeedsInstance:
    """A serializer that somebody may pass without making an instance of it."""

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
def test_serializers(value: Any, reason: str) -> None:
    for name in ("key_serializer", "value_serializer"):
        text = problem(**{name: value})
        assert text.startswith(f'{name}: expected "bytes", "str", "json", "int", "int32", "float"')
        assert text.endswith(f", or None; {reason}")


class Unspeakable:
    """Fails when it is written out."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"linger_ms": 10**5000}, "got <a huge integer> (int)"),
        ({"linger_ms": Unspeakable()}, "Unspeakable"),
        ({"client_id": "x" * 32768}, "it has 32768 bytes"),
        ({"client_id": "\ud800"}, "cannot be encoded as UTF-8"),
    ],
    ids=["huge", "unspeakable", "long", "no unicode"],
)
def test_what_can_hardly_be_told_is_told_all_the_same(options: dict[str, Any], words: str) -> None:
    assert words in problem(**options)
