"""Every wrong argument of send is an error that names it, what was given and what is expected."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType
from typing import Any

import numpy
import pytest

from kprod.errors import (
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    RecordTypeError,
)
from kprod.intake.arguments import (
    check_partition,
    check_record,
    check_timestamp,
    check_topic,
    freeze_headers,
)
from kprod.types import ProducerRecord
from tests.support.steady_names import steady_repr


class Silent(str):
    """Text that cannot be turned into text."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Odd(bytes):
    """Bytes that say they are others."""

    def __bytes__(self) -> bytes:
        return b"other"


class Topics(enum.StrEnum):
    """Topic names as applications like to keep them."""

    FLIGHTS = "flights"


def refused(check: Callable[[Any], Any], value: Any, error: type[KprodError]) -> str:
    with pytest.raises(error) as raised:
        check(value)
    assert type(raised.value) is error
    assert len(str(raised.value)) < 400
    return str(raised.value)


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "x" * 250, "x" * 10**6, "a b", "é", "a/b", "\x00", "a\n", "\ud800", " a", "а"],  # noqa: RUF001
    ids=lambda topic: ascii(topic)[:20],
)
def test_topics_kafka_does_not_have(topic: str) -> None:
    text = refused(check_topic, topic, InvalidTopicError)
    assert text.startswith("topic: expected 1 to 249 of the characters a-z A-Z 0-9 . _ -")
    assert f"of {len(topic)} characters" in text


def test_a_topic_that_is_not_text() -> None:
    for topic, shown in ((None, "None"), (b"x" * 10**6, "(1000000 bytes) (bytes)")):
        text = refused(check_topic, topic, RecordTypeError)
        assert text.startswith("topic: expected a str, got ")
        assert text.endswith(shown)


@pytest.mark.parametrize("topic", [Silent("flights"), Topics.FLIGHTS], ids=["silent", "enum"])
def test_a_kind_of_str_counts_by_its_text(topic: str) -> None:
    plain = check_topic(topic)
    assert plain == "flights"
    assert type(plain) is str


def test_other_integers_become_plain_ones() -> None:
    assert type(check_partition(numpy.int32(3))) is int
    assert type(check_timestamp(numpy.int64(3))) is int


@pytest.mark.parametrize(
    ("timestamp", "hint"),
    [
        ("1700000000000", "(str)"),
        (1.7e12, "pass int(...) of milliseconds since 1970"),
        (datetime(2024, 1, 1), "pass int(moment.timestamp() * 1000)"),
    ],
    ids=steady_repr,
)
def test_a_timestamp_that_is_no_number(timestamp: Any, hint: str) -> None:
    text = refused(check_timestamp, timestamp, RecordTypeError)
    assert text.startswith("timestamp_ms: expected an int or None, got ")
    assert text.endswith(hint)


@pytest.mark.parametrize(
    "headers",
    [
        MappingProxyType({"a": b"12", "b": None}),
        {"a": bytearray(b"12"), "b": None}.items(),
        [["a", memoryview(b"1x2x")[::2]], ("b", None)],
        [{"key": "a", "value": Odd(b"12")}, {"value": None, "key": "b"}],
    ],
    ids=steady_repr,
)
def test_headers_in_the_forms_they_come_in(headers: Any) -> None:
    frozen = freeze_headers(headers)
    assert frozen == (("a", b"12"), ("b", None))
    assert type(frozen[0][1]) is bytes


def test_a_header_name_that_is_no_unicode_text() -> None:
    text = refused(freeze_headers, [("\ud800", b"")], InvalidRecordError)
    assert text.startswith("headers[0]: the name '\\ud800' (str) cannot be encoded as UTF-8")


def test_a_header_value_that_is_not_bytes() -> None:
    for value in ("text", array("H", [1])):
        text = refused(freeze_headers, [("a", value)], RecordTypeError)
        assert text.startswith("headers[0]: expected bytes or None as the value, got ")
        assert ("encode text with .encode()" in text) == isinstance(value, str)
    view = memoryview(b"12")
    view.release()
    assert "headers[0]: " in refused(freeze_headers, [("a", view)], InvalidRecordError)


def test_a_record_in_its_one_form() -> None:
    given = ProducerRecord(Topics.FLIGHTS, b"v", b"k", [("a", None)], numpy.int64(1), None)  # type: ignore[arg-type]
    assert check_record(given) == ProducerRecord("flights", b"v", b"k", (("a", None),), 1, None)
