"""Writing protobuf: the few wire types that metrics are made of, and no schema language.

Source: the Protocol Buffers documentation, "Encoding". A field that has its default value may be
left out (proto3); whoever writes decides that.
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_DOUBLE = struct.Struct("<d")
_UINT64 = struct.Struct("<Q")


def uvarint(value: int) -> bytes:
    """A number of at least 0 in groups of 7 bits, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field of the types uint32, uint64, bool or enum; not below 0."""
    return uvarint(field << 3 | _VARINT) + uvarint(value)


def fixed64(field: int, value: int) -> bytes:
    """A field of the type fixed64."""
    return uvarint(field << 3 | _FIXED64) + _UINT64.pack(value)


def double(field: int, value: float) -> bytes:
    """A field of the type double."""
    return uvarint(field << 3 | _FIXED64) + _DOUBLE.pack(value)


def message(field: int, content: bytes) -> bytes:
    """A field that is a message, or bytes."""
    return uvarint(field << 3 | _BYTES) + uvarint(len(content)) + content


def string(field: int, text: str) -> bytes:
    """A field of the type string."""
    return message(field, text.encode())
