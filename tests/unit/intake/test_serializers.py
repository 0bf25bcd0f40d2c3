"""Keys and values become bytes, or an error says which did not, and what would help."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy
import pytest

from kprod.errors import (
    InvalidRecordError,
    KprodError,
    KprodTimeoutError,
    RecordTypeError,
    SerializationError,
)
from kprod.intake.serializers import Serializers
from kprod.types import Header, ProducerRecord
from tests.support.steady_names import steady_repr

FIELDS = ["key", "value"]


def record(field: str, data: Any) -> ProducerRecord:
    return ProducerRecord("flights", **{field: data}, headers=(("h", b"1"),))


def refused(serializers: Serializers, given: ProducerRecord) -> str:
    with pytest.raises(SerializationError) as raised:
        serializers.apply(given)
    assert isinstance(raised.value, KprodError)
    assert isinstance(raised.value, TypeError)
    return str(raised.value)


@pytest.mark.parametrize(
    "data",
    [None, b"", b"x", bytearray(b"x"), memoryview(b"x"), memoryview(bytearray(4))[1:3]],
    ids=steady_repr,
)
def test_what_can_be_sent_goes_through_untouched(data: Any) -> None:
    key, value, _ = Serializers().apply(ProducerRecord("t", key=data, value=data))
    assert key is data
    assert value is data


NEEDED = "expected bytes, bytearray, memoryview or None, got "
VIEW = "expected a contiguous memoryview of"


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("data", "start", "advice"),
    [
        ("text", f"{NEEDED}str; pass ", '_serializer="str"'),
        (5, f"{NEEDED}int; pass ", '"json"'),
        (True, f"{NEEDED}bool; pass ", '"json"'),
        ([1], f"{NEEDED}list; pass ", '"json"'),
        ({"a": 1}, f"{NEEDED}dict; pass ", '"json"'),
        ((b for b in [b""]), f"{NEEDED}generator; pass ", "to turn it into bytes"),
        (array("H", [1]), f"{NEEDED}array; pass ", "to turn it into bytes"),
        (numpy.zeros((2, 2)), f"{NEEDED}ndarray; pass ", "to turn it into bytes"),
        (
            type("WithBytes", (), {"__bytes__": lambda _: b""})(),
            f"{NEEDED}WithBytes; pass ",
            "to turn it into bytes",
        ),
        (memoryview(b"abcdef")[::2], VIEW, "pass view.cast('B') or view.tobytes()"),
        (memoryview(array("H", [1, 2])), VIEW, "pass view.cast('B') or view.tobytes()"),
        (memoryview(bytes(4)).cast("B", (2, 2)), VIEW, "pass view.cast('B') or view.tobytes()"),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_needs_a_serializer(field: str, data: Any, start: str, advice: str) -> None:
    text = refused(Serializers(), record(field, data))
    assert text.startswith(f"{field} for topic 'flights': {start}")
    assert advice in text


@pytest.mark.parametrize("field", FIELDS)
def test_a_released_view(field: str) -> None:
    view = memoryview(b"x")
    view.release()
    with pytest.raises(InvalidRecordError, match=f"^{field} for topic 'flights': .*released"):
        Serializers().apply(record(field, view))


class Recording:
    """An object serializer that keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Sequence[Header], Any]] = []

    def serialize(self, topic: str, headers: Sequence[Header], data: Any) -> bytes:
        self.calls.append((topic, headers, data))
        return b"done"


def test_an_object_gets_topic_headers_and_object() -> None:
    serializer = Recording()
    assert Serializers(value=serializer).apply(record("value", "v"))[:2] == (None, b"done")
    assert serializer.calls == [("flights", [("h", b"1")], "v")]


class Labels:
    def serialize(self, topic: str, headers: list[Any], data: Any) -> bytes:
        headers.append(("label", bytearray(str(data).encode())))
        return b"done"


def test_a_serializer_adds_headers_which_are_frozen_afterwards() -> None:
    given = record("value", "v")
    headers = Serializers(key=Labels(), value=Labels()).apply(given)[2]
    assert headers == (("h", b"1"), ("label", b"None"), ("label", b"v"))
    assert [type(value) for _, value in headers] == [bytes] * 3
    assert given.headers == (("h", b"1"),)


def test_headers_of_a_serializer_are_checked() -> None:
    class Wrong:
        def serialize(self, topic: str, headers: list[Any], data: Any) -> bytes:
            headers.append(("label", "text"))
            return b""

    with pytest.raises(RecordTypeError, match=r"headers\[1\]: expected bytes"):
        Serializers(value=Wrong()).apply(record("value", 1))


def test_what_an_error_of_kprods_own_says_stands() -> None:
    error = KprodTimeoutError("the registry does not answer")

    def fail(_: Any) -> bytes:
        raise error

    with pytest.raises(KprodTimeoutError) as raised:
        Serializers(value=fail).apply(record("value", 1))
    assert raised.value is error


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("result", [bytearray(b"x"), memoryview(b"x"), b"", None], ids=steady_repr)
def test_results_that_can_be_sent(field: str, result: Any) -> None:
    serialized = Serializers(**{field: lambda _: result}).apply(record(field, object()))
    assert serialized[FIELDS.index(field)] is result


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("result", ["text", 5, [b""], array("B", [1])], ids=steady_repr)
def test_results_that_cannot(field: str, result: Any) -> None:
    text = refused(Serializers(**{field: lambda _: result}), record(field, object()))
    assert text.endswith(f"got {type(result).__name__}; that is what {field}_serializer returned")


@pytest.mark.parametrize("field", FIELDS)
def test_a_serializer_that_fails(field: str) -> None:
    text = refused(Serializers(**{field: str.encode}), record(field, 5))
    assert text.startswith(
        f"{field} for topic 'flights': {field}_serializer failed on int: TypeError"
    )
