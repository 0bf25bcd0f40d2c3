"""Keys and values become bytes, or an error says which is wrong, and gives advice."""

from __future__ import annotations

import math
from array import array
from decimal import Decimal
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
from kprod.intake.serializers import (
    NAMED_SERIALIZERS,
    Serializers,
    float_serializer,
    int32_serializer,
    int_serializer,
    json_serializer,
    str_serializer,
)
from kprod.types import ProducerRecord
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
def test_bytes_like_values_pass_through_unchanged(data: Any) -> None:
    key, value, _ = Serializers().apply(ProducerRecord("t", key=data, value=data))
    assert key is data
    assert value is data


NEEDED = "expected bytes, bytearray, memoryview or None, got "
VIEW = "expected a contiguous memoryview of"


class WithBytes:
    def __bytes__(self) -> bytes:
        return b""


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("data", "start", "advice"),
    [
        ("text", f"{NEEDED}str; pass ", '_serializer="str"'),
        (5, f"{NEEDED}int; pass ", '"json"'),
        (True, f"{NEEDED}bool; pass ", '"json"'),
        ({"a": 1}, f"{NEEDED}dict; pass ", '"json"'),
        (array("H", [1]), f"{NEEDED}array; pass ", "to turn it into bytes"),
        (WithBytes(), f"{NEEDED}WithBytes; pass ", "to turn it into bytes"),
        (memoryview(b"abcdef")[::2], VIEW, "pass view.cast('B') or view.tobytes()"),
        (memoryview(array("H", [1, 2])), VIEW, "pass view.cast('B') or view.tobytes()"),
        (memoryview(bytes(4)).cast("B", (2, 2)), VIEW, "pass view.cast('B') or view.tobytes()"),
    ],
    ids=lambda data: type(data).__name__,
)
def test_a_value_that_needs_a_serializer_is_refused_with_advice(
    field: str, data: Any, start: str, advice: str
) -> None:
    text = refused(Serializers(), record(field, data))
    assert text.startswith(f"{field} for topic 'flights': {start}")
    assert advice in text


@pytest.mark.parametrize("field", FIELDS)
def test_a_released_view_is_refused(field: str) -> None:
    view = memoryview(b"x")
    view.release()
    with pytest.raises(InvalidRecordError, match=f"^{field} for topic 'flights': .*released"):
        Serializers().apply(record(field, view))


class Labels:
    def serialize(self, topic: str, headers: list[Any], data: Any) -> bytes:
        headers.append((topic, bytearray(str(data).encode())))
        return b"done"


def test_headers_added_by_a_serializer_are_copied() -> None:
    given = record("value", "v")
    _, value, headers = Serializers(key=Labels(), value=Labels()).apply(given)
    assert value == b"done"
    assert headers == (("h", b"1"), ("flights", b"None"), ("flights", b"v"))
    assert [type(value) for _, value in headers] == [bytes] * 3
    assert given.headers == (("h", b"1"),)


class Strips:
    def serialize(self, topic: str, headers: list[Any], data: Any) -> bytes:
        headers.clear()
        return b"done"


def test_a_serializer_may_add_the_first_header_or_remove_the_last() -> None:
    plain = ProducerRecord("flights", value="v")
    assert Serializers(value=Labels()).apply(plain)[2] == (("flights", b"v"),)
    assert Serializers(value=Strips()).apply(record("value", "v"))[2] == ()


def test_headers_of_a_serializer_are_checked() -> None:
    class Wrong:
        def serialize(self, topic: str, headers: list[Any], data: Any) -> bytes:
            headers.append(("label", "text"))
            return b""

    with pytest.raises(RecordTypeError, match=r"headers\[1\]: expected bytes"):
        Serializers(value=Wrong()).apply(record("value", 1))


def test_kprod_errors_of_a_serializer_are_raised_unchanged() -> None:
    error = KprodTimeoutError("the registry does not answer")

    def fail(_: Any) -> bytes:
        raise error

    with pytest.raises(KprodTimeoutError) as raised:
        Serializers(value=fail).apply(record("value", 1))
    assert raised.value is error


@pytest.mark.parametrize("field", FIELDS)
def test_results_of_serializers_are_checked_and_their_errors_wrapped(field: str) -> None:
    for good in (bytearray(b"x"), memoryview(b"x"), b"", None):
        serialized = Serializers(**{field: lambda _, good=good: good}).apply(record(field, 5))
        assert serialized[FIELDS.index(field)] is good
    for bad in ("text", 5, array("B", [1])):
        text = refused(Serializers(**{field: lambda _, bad=bad: bad}), record(field, 5))
        assert text.endswith(f"got {type(bad).__name__}; that is what {field}_serializer returned")
    text = refused(Serializers(**{field: str.encode}), record(field, 5))
    assert text.startswith(f"{field} for topic 'flights': {field}_serializer failed on int: Type")


def test_null_stays_null_and_text_and_json_become_utf_8() -> None:
    assert {serialize(None) for serialize in NAMED_SERIALIZERS.values()} == {None}
    assert str_serializer("Übergröße") == b"\xc3\x9cbergr\xc3\xb6\xc3\x9fe"
    assert json_serializer({"a": [1, None], "ü": True}) == '{"a":[1,null],"ü":true}'.encode()


@pytest.mark.parametrize(
    ("serializer", "number", "hexadecimal"),
    [
        (int_serializer, 0, "0000000000000000"),
        (int_serializer, 1, "0000000000000001"),
        (int_serializer, -1, "ffffffffffffffff"),
        (int_serializer, 2**63 - 1, "7fffffffffffffff"),
        (int_serializer, -(2**63), "8000000000000000"),
        (int_serializer, numpy.int64(-2), "fffffffffffffffe"),
        (int32_serializer, 0, "00000000"),
        (int32_serializer, 258, "00000102"),
        (int32_serializer, -1, "ffffffff"),
        (int32_serializer, -(2**31), "80000000"),
        (float_serializer, 0.0, "0000000000000000"),
        (float_serializer, -0.0, "8000000000000000"),
        (float_serializer, 1.0, "3ff0000000000000"),
        (float_serializer, 0.1, "3fb999999999999a"),
        (float_serializer, -math.inf, "fff0000000000000"),
        (float_serializer, math.nan, "7ff8000000000000"),
        (float_serializer, 3, "4008000000000000"),
        (float_serializer, Decimal("0.5"), "3fe0000000000000"),
        (float_serializer, numpy.float32(0.5), "3fe0000000000000"),
    ],
)
def test_number_serializers(serializer: Any, number: Any, hexadecimal: str) -> None:
    assert serializer(number) == bytes.fromhex(hexadecimal)


NO_INTEGERS: list[Any] = [True, 1.0, "1", b"1", Decimal(1), [1]]
NO_NUMBERS: list[Any] = [True, "1", b"1", [1], {}]


@pytest.mark.parametrize(
    ("serializer", "value", "error"),
    [
        *((int_serializer, value, TypeError) for value in NO_INTEGERS),
        *((int32_serializer, value, TypeError) for value in NO_INTEGERS),
        *((float_serializer, value, TypeError) for value in NO_NUMBERS),
        (int_serializer, 2**63, OverflowError),
        (int_serializer, -(2**63) - 1, OverflowError),
        (int32_serializer, 2**31, OverflowError),
        (float_serializer, 10**400, OverflowError),
    ],
    ids=steady_repr,
)
def test_wrong_numbers_are_refused(serializer: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        serializer(value)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [("str", 5, "str"), ("int", "5", "int"), ("int32", 2.5, "int"), ("float", [5], "float")],
)
def test_a_named_serializer_refuses_other_types(name: str, value: Any, wanted: str) -> None:
    text = refused(Serializers(key=name), record("key", value))
    assert text.endswith(f"key_serializer expects {wanted}, got {type(value).__name__}")
