"""What the serializers with a name write is what Kafka's own write."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy
import pytest

from kprod.errors import SerializationError
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


@pytest.mark.parametrize("name", NAMED_SERIALIZERS)
def test_null_stays_null(name: str) -> None:
    assert NAMED_SERIALIZERS[name](None) is None


def test_text() -> None:
    assert str_serializer("Übergröße") == b"\xc3\x9cbergr\xc3\xb6\xc3\x9fe"


def test_json() -> None:
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
def test_numbers(serializer: Any, number: Any, hexadecimal: str) -> None:
    assert serializer(number) == bytes.fromhex(hexadecimal)


NO_INTEGERS: list[Any] = [True, 1.0, "1", b"1", Decimal(1), [1]]
NO_NUMBERS: list[Any] = [True, "1", b"1", [1], {}]


@pytest.mark.parametrize(
    ("serializer", "value", "error"),
    [
        *(
            (kind, value, TypeError)
            for kind in (int_serializer, int32_serializer)
            for value in NO_INTEGERS
        ),
        *((float_serializer, value, TypeError) for value in NO_NUMBERS),
        (int_serializer, 2**63, OverflowError),
        (int_serializer, -(2**63) - 1, OverflowError),
        (int32_serializer, 2**31, OverflowError),
        (float_serializer, 10**400, OverflowError),
    ],
    ids=steady_repr,
)
def test_no_numbers(serializer: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        serializer(value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("str", 5, "expects str, got int"),
        ("int", "5", "expects int, got str"),
        ("int32", 2.5, "expects int, got float"),
        ("float", [5], "expects float, got list"),
    ],
)
def test_an_object_of_another_type_is_refused_by_name(name: str, value: Any, text: str) -> None:
    serializers = Serializers(key=name)
    with pytest.raises(SerializationError) as caught:
        serializers.apply(ProducerRecord("t", key=value))
    assert str(caught.value) == f"key for topic 't': key_serializer {text}"
