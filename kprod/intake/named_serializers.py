"""The serializers that have a name."""

from __future__ import annotations

import json
import operator
import struct
from collections.abc import Callable
from typing import Any

_DOUBLE = struct.Struct(">d")


def str_serializer(text: str | None) -> bytes | None:
    """Text as UTF-8; None stays null."""
    return None if text is None else text.encode()


def json_serializer(value: Any) -> bytes | None:
    """JSON without spaces, in UTF-8; None stays null, which deletes a key of a compacted topic.

    Raises ValueError for NaN and infinities, which JSON has no words for, TypeError as json.dumps.
    """
    if value is None:
        return None
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def int_serializer(number: int | None) -> bytes | None:
    """8 bytes, big-endian, signed (Kafka's ``LongSerializer``); None stays null.

    Raises TypeError for what is no integer, OverflowError for one that needs more than 64 bits.
    """
    return None if number is None else _integer(number).to_bytes(8, "big", signed=True)


def int32_serializer(number: int | None) -> bytes | None:
    """4 bytes, big-endian, signed (Kafka's ``IntegerSerializer``); None stays null.

    Raises TypeError for what is no integer, OverflowError for one that needs more than 32 bits.
    """
    return None if number is None else _integer(number).to_bytes(4, "big", signed=True)


def float_serializer(number: float | None) -> bytes | None:
    """8 bytes, IEEE 754 double, big-endian (Kafka's ``DoubleSerializer``); None stays null.

    Raises TypeError for what is no number, OverflowError for an integer beyond the largest double.
    """
    if number is None:
        return None
    if isinstance(number, bool | str | bytes | bytearray):
        raise TypeError(f"expected a number, got {type(number).__name__}")
    return _DOUBLE.pack(float(number))


def _integer(number: int) -> int:
    if type(number) is int:
        return number
    if isinstance(number, bool):
        raise TypeError("expected an integer, got bool")
    return operator.index(number)


NAMED_SERIALIZERS: dict[str, Callable[[Any], bytes | None]] = {
    "str": str_serializer,
    "json": json_serializer,
    "int": int_serializer,
    "int32": int32_serializer,
    "float": float_serializer,
}
