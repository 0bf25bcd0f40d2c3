"""Arguments of ``send`` are kept exactly, or refused with what was given and what is expected."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kprod.config import OPTIONS, ProducerConfig
from kprod.config.foreign_options import IGNORED, unavailable
from kprod.errors import (
    ConfigError,
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    PartitionError,
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
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Odd(bytes):
    """Bytes whose ``__bytes__`` returns others."""

    def __bytes__(self) -> bytes:
        return b"other"


class Topics(enum.StrEnum):
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
def test_invalid_topic_names_are_refused(topic: str) -> None:
    text = refused(check_topic, topic, InvalidTopicError)
    assert text.startswith("topic: expected 1 to 249 of the characters a-z A-Z 0-9 . _ -")
    assert f"of {len(topic)} characters" in text


def test_a_topic_that_is_not_a_str_is_refused() -> None:
    for topic, shown in ((None, "None"), (b"x" * 10**6, "(1000000 bytes) (bytes)")):
        text = refused(check_topic, topic, RecordTypeError)
        assert text.startswith("topic: expected a str, got ")
        assert text.endswith(shown)


@pytest.mark.parametrize("topic", [Silent("flights"), Topics.FLIGHTS], ids=["silent", "enum"])
def test_a_subclass_of_str_becomes_a_plain_str(topic: str) -> None:
    plain = check_topic(topic)
    assert plain == "flights"
    assert type(plain) is str


def test_numpy_integers_become_plain_int() -> None:
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
def test_a_timestamp_that_is_not_an_int_is_refused_with_a_hint(timestamp: Any, hint: str) -> None:
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
def test_headers_are_accepted_in_every_form(headers: Any) -> None:
    frozen = freeze_headers(headers)
    assert frozen == (("a", b"12"), ("b", None))
    assert type(frozen[0][1]) is bytes


def test_a_header_name_that_cannot_be_encoded_is_refused() -> None:
    text = refused(freeze_headers, [("\ud800", b"")], InvalidRecordError)
    assert text.startswith("headers[0]: the name '\\ud800' (str) cannot be encoded as UTF-8")


def test_a_header_value_that_is_not_bytes_is_refused() -> None:
    for value in ("text", array("H", [1])):
        text = refused(freeze_headers, [("a", value)], RecordTypeError)
        assert text.startswith("headers[0]: expected bytes or None as the value, got ")
        assert ("encode text with .encode()" in text) == isinstance(value, str)
    view = memoryview(b"12")
    view.release()
    assert "headers[0]: " in refused(freeze_headers, [("a", view)], InvalidRecordError)


def test_a_record_is_normalized() -> None:
    given = ProducerRecord(Topics.FLIGHTS, b"v", b"k", [("a", None)], numpy.int64(1), None)  # type: ignore[arg-type]
    assert check_record(given) == ProducerRecord("flights", b"v", b"k", (("a", None),), 1, None)


data = st.binary(max_size=20)
buffers = st.one_of(
    data, data.map(bytearray), data.map(lambda content: memoryview(bytearray(content)))
)
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.binary()),
    st.builds(object),
)
pairs = st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | buffers)


@given(st.lists(pairs))
def test_headers_are_copied_at_the_call(headers: list[tuple[str, Any]]) -> None:
    expected = tuple((name, None if value is None else bytes(value)) for name, value in headers)
    frozen = freeze_headers(headers)
    for _, value in headers:
        if isinstance(value, bytearray):
            value[:] = b"changed"
        elif isinstance(value, memoryview):
            value[:] = bytes(len(value))
    headers.clear()
    assert frozen == expected
    assert all(value is None or type(value) is bytes for _, value in frozen)


@given(anything | st.lists(anything) | st.lists(st.tuples(anything, anything)))
def test_headers_are_kept_or_refused(headers: Any) -> None:
    error_text = error_of(
        lambda given: list(freeze_headers(given)) == pairs_of(given),
        headers,
        (RecordTypeError, InvalidRecordError),
    )
    assert error_text is None or error_text.startswith("headers")


def pairs_of(headers: Any) -> list[Any]:
    """The pairs of headers in any accepted form."""
    pairs = headers.items() if isinstance(headers, dict) else headers or ()
    return [
        (pair["key"], pair["value"]) if isinstance(pair, dict) else tuple(pair) for pair in pairs
    ]


@pytest.mark.parametrize(
    ("check", "error", "start"),
    [
        (check_topic, InvalidTopicError, "topic: expected"),
        (check_partition, PartitionError, "partition: expected"),
        (check_timestamp, InvalidRecordError, "timestamp_ms: expected"),
    ],
)
@given(anything)
def test_an_argument_is_kept_or_refused(
    check: Callable[[Any], Any], error: type[KprodError], start: str, argument: Any
) -> None:
    error_text = error_of(lambda given: check(given) == given, argument, (error, RecordTypeError))
    if error_text is not None:
        assert error_text.startswith(start)
    elif check is not check_topic:
        assert argument is None or type(argument) is int


@example({"partitioner_cb": None})
@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)) | st.text(), anything, max_size=6))
def test_options_are_accepted_or_refused(options: dict[str, Any]) -> None:
    error_text = error_of(
        lambda given: repr(ProducerConfig.from_options(given)) != "", options, (ConfigError,)
    )
    # Options of other clients may be ignored, or accepted as None.
    elsewhere = {name for name in options if name in IGNORED or unavailable(name) is not None}
    assert error_text is not None or set(options) <= OPTIONS.keys() | elsewhere


def error_of(
    keeps: Callable[[Any], bool], given: Any, errors: tuple[type[KprodError], ...]
) -> str | None:
    """The text of the error, or None if the argument is kept unchanged."""
    try:
        kept = keeps(given)
    except errors as error:
        return str(error)
    assert kept
    return None
