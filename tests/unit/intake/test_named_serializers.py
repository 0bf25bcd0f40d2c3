"""What the serializers with a name write is what Kafka's own write."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy
import pytest

from kprod.intake.serializers import (
    NAMED_SERIALIZERS,
    float_serializer,
    int32_serializer,
    int_serializer,
    json_serializer,
)
from tests.support.steady_names import steady_repr


@pytest.mark.parametrize("name", NAMED_SERIALIZERS)
def test_null_stays_null(name: str) -> None:
    assert NAMED_SERIALIZERS[name](None) is None


def test_json() -> None:
    assert json_serializer({"a": [1, None], "ü": True}) == '{"a":[1,null],"ü":true}'.encode()


@pytest.mark.parametrize(
    ("number", "hexadecimal"),
    [
        (0, "0000000000000000"),
        (1, "0000000000000001"),
        (-1, "ffffffffffffffff"),
        (2**63 - 1, "7fffffffffffffff"),
        (-(2**63), "8000000000000000"),
        (numpy.int64(-2), "fffffffffffffffe"),
    ],
)
def test_longs(number: Any, hexadecimal: str) -> None:
    assert int_serializer(number) == bytes.fromhex(hexadecimal)


@pytest.mark.parametrize(
    ("number", "hexadecimal"),
    [(0, "00000000"), (258, "00000102"), (-1, "ffffffff"), (-(2**31), "80000000")],
)
def test_integers(number: int, hexadecimal: str) -> None:
    assert int32_serializer(number) == bytes.fromhex(hexadecimal)


@pytest.mark.parametrize("serializer", [int_serializer, int32_serializer])
@pytest.mark.parametrize("value", [True, 1.0, "1", b"1", Decimal(1), [1]], ids=steady_repr)
def test_no_integer(serializer: Any, value: Any) -> None:
    with pytest.raises(TypeError):
        serializer(value)


@pytest.mark.parametrize(
    ("serializer", "number"),
    [
        (int_serializer, 2**63),
        (int_serializer, -(2**63) - 1),
        (int32_serializer, 2**31),
        (float_serializer, 10**400),
    ],
)
def test_too_large(serializer: Any, number: int) -> None:
    with pytest.raises(OverflowError):
        serializer(number)


@pytest.mark.parametrize(
    ("number", "hexadecimal"),
    [
        (0.0, "0000000000000000"),
        (-0.0, "8000000000000000"),
        (1.0, "3ff0000000000000"),
        (0.1, "3fb999999999999a"),
        (-math.inf, "fff0000000000000"),
        (math.nan, "7ff8000000000000"),
        (3, "4008000000000000"),
        (Decimal("0.5"), "3fe0000000000000"),
        (numpy.float32(0.5), "3fe0000000000000"),
    ],
)
def test_doubles(number: Any, hexadecimal: str) -> None:
    assert float_serializer(number) == bytes.fromhex(hexadecimal)


@pytest.mark.parametrize("value", [True, "1", b"1", [1], {}], ids=steady_repr)
def test_no_number(value: Any) -> None:
    with pytest.raises(TypeError):
        float_serializer(value)
