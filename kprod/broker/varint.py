"""Zigzag variable-length integers as records use them (Protocol Buffers encoding, read only)."""

from __future__ import annotations

from kprod.broker.corrupt_batch import CorruptBatch

_SINGLE_BYTE = 0x80
_INT_BITS = 32
_LONG_BITS = 64


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The signed 32-bit integer at ``at`` and the position after it.

    Raises ``CorruptBatch`` for more than 32 bits, ``IndexError`` when the bytes end first.
    """
    first = data[at]
    if first < _SINGLE_BYTE:
        return (first >> 1) ^ -(first & 1), at + 1
    return _read_long_form(data, at, _INT_BITS)


def read_varlong(data: bytes, at: int) -> tuple[int, int]:
    """Like ``read_varint`` for 64 bits."""
    first = data[at]
    if first < _SINGLE_BYTE:
        return (first >> 1) ^ -(first & 1), at + 1
    return _read_long_form(data, at, _LONG_BITS)


def _read_long_form(data: bytes, at: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while shift < bits:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _SINGLE_BYTE:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise CorruptBatch(f"a varint takes more than {bits} bits")
