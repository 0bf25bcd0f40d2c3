"""Writes the schema id of a record before its bytes, or into a header.

The formats are Confluent's: a magic byte 0 and the id in four bytes, or a magic byte 1 and the GUID
in 16 bytes. Protobuf adds the path of the message within its file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from kprod.errors import SerializationError
from kprod.schema.schema import RegisteredSchema

IdPlace: TypeAlias = Literal["prefix", "header"]

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"


def id_bytes(registered: RegisteredSchema, suffix: bytes = b"") -> bytes:
    """The magic byte 0 and the id."""
    return struct.pack(">bI", 0, registered.id) + suffix


def id_header(registered: RegisteredSchema, is_key: bool, suffix: bytes = b"") -> tuple[str, bytes]:
    """The header with the GUID or, if the registry has no GUIDs, with the id."""
    name = KEY_HEADER if is_key else VALUE_HEADER
    if registered.guid is None:
        return name, id_bytes(registered, suffix)
    return name, b"\x01" + registered.guid.bytes + suffix


def message_indexes(indexes: Iterable[int]) -> bytes:
    """The indexes of a Protobuf message: their count, and each one. ``[0]`` is a single 0.

    All numbers are zigzag varints.
    """
    path = list(indexes)
    if path == [0]:
        return b"\0"
    return b"".join(map(_zigzag_varint, (len(path), *path)))


def _zigzag_varint(number: int) -> bytes:
    left, parts = number << 1, bytearray()
    while left > 0x7F:
        parts.append(left & 0x7F | 0x80)
        left >>= 7
    parts.append(left)
    return bytes(parts)


def add_header(headers: Any, header: tuple[str, bytes]) -> None:
    """Add a header to a record's headers. It replaces one that an earlier attempt has added."""
    if isinstance(headers, dict):
        headers[header[0]] = header[1]
    elif isinstance(headers, list):
        headers[:] = [pair for pair in headers if pair[0] != header[0]]
        headers.append(header)
    else:
        raise SerializationError(
            "a schema id in a header needs the record's headers as a list or dict, got"
            f" {type(headers).__name__}"
        )
