"""Encodes and decodes Kafka's messages, by the schemas of the package kio.

kio has a class for every version of a message. To send a message, pass a mapping of all fields that
any version has, under kio's names, and with times as integers in milliseconds. ``Schema`` writes
the fields that its version has. A field that is missing from the mapping gets its default.

kio's own writer is not used, because it needs objects of kio's classes and makes one call for each
byte of a varint; it took a fifth of the time of a Produce request.
"""

from __future__ import annotations

import struct
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema

from kprod.broker.protocol.message_reader import (
    EPOCH,
    Allowance,
    FieldShape,
    field_shapes,
    is_old_form,
    message_reader,
)
from kprod.broker.records.file_slice import FileSlice, in_memory
from kprod.errors import ProtocolError
from kprod.types import BytesLike

Write = Callable[[Any, "Frame"], None]
"""Appends a value. Raises ``struct.error`` or TypeError for a value that does not fit its field."""

_SIZE: Final = struct.Struct(">i")
_KEPT_BYTES: Final = 64 * 1024
_MILLISECOND: Final = timedelta(milliseconds=1)
_ABSENT: Final = object()
_ZERO_ID: Final = bytes(16)


class Frame:
    """A message that is being written. Small values are copied into ``tail``.

    Values of 64 KiB or more are not copied.
    """

    __slots__ = ("_parts", "_size", "tail")

    def __init__(self) -> None:
        self._parts: list[BytesLike | FileSlice] = []
        self._size = 0
        self.tail = bytearray()

    def add(self, data: BytesLike | FileSlice) -> None:
        """Append bytes of any length."""
        if isinstance(data, FileSlice) or len(data) >= _KEPT_BYTES:
            self._end_part()
            self._parts.append(data)
            self._size += len(data)
        else:
            self.tail += data

    def _end_part(self) -> None:
        if self.tail:
            self._parts.append(self.tail)
            self._size += len(self.tail)
            self.tail = bytearray()

    def parts(self) -> list[BytesLike | FileSlice]:
        """Return everything that was written, preceded by its size in four bytes."""
        self._end_part()
        size = _SIZE.pack(self._size)
        first, *rest = self._parts
        return [size, first, *rest] if isinstance(first, FileSlice) else [size + first, *rest]

    def content(self) -> bytes:
        """Return everything that was written, in one piece and without the size."""
        self._end_part()
        return in_memory(self._parts)


@cache
def message_writer(entity: Any) -> Write:
    """Make a function that writes a mapping with the fields of one of kio's classes.

    A missing field gets its default value; unknown fields are ignored.
    """
    shapes = list(field_shapes(entity))
    always = [_field(shape, entity) for shape in shapes if shape.tag is None]
    tagged = sorted(
        ((shape.tag, *_field(shape, entity)) for shape in shapes if shape.tag is not None),
        key=lambda each: each[0],
    )
    flexible = entity.__flexible__

    def write(values: Mapping[str, Any], frame: Frame) -> None:
        for name, write_field, default in always:
            value = values.get(name, _ABSENT)
            if value is _ABSENT:
                frame.tail += default
            else:
                write_field(value, frame)
        if flexible:
            _write_tagged(values, tagged, frame)

    return write


def _write_tagged(
    values: Mapping[str, Any], tagged: Sequence[tuple[int, str, Write, bytes]], frame: Frame
) -> None:
    """Write the tagged fields that differ from their defaults, by ascending tag (KIP-482)."""
    count, found = 0, bytearray()
    for tag, name, write_field, default in tagged:
        value = values.get(name)
        if value is not None:
            content = _bytes_of(write_field, value)
            if content != default:
                count += 1
                found += _uvarint(tag) + _uvarint(len(content)) + content
    frame.tail += _uvarint(count)
    frame.tail += found


def _field(shape: FieldShape, entity: Any) -> tuple[str, Write, bytes]:
    """Return a field's name, its writer, and its encoded default."""
    compact = entity.__flexible__ and not is_old_form(shape, entity)
    if shape.struct is not None:
        one = message_writer(shape.struct)
    elif shape.kafka_type in _FIXED:
        one = _FIXED[shape.kafka_type]
    else:
        one = _bytes(shape.kafka_type, compact)
    if shape.is_array:
        write = _array(one, compact)
    else:
        write = _nullable(one) if shape.struct is not None and shape.nullable else one
    return shape.name, write, _default(shape, write)


def _default(shape: FieldShape, write: Write) -> bytes:
    value = shape.absent
    if isinstance(value, timedelta):
        value = value // _MILLISECOND
    elif isinstance(value, datetime):
        value = (value - EPOCH) // _MILLISECOND
    if shape.struct is not None and not shape.is_array and not shape.nullable:
        value = {}
    nothing = value is None and not shape.nullable and shape.kafka_type in _LENGTHS
    return b"" if nothing else _bytes_of(write, value)


def _bytes_of(write: Write, value: object) -> bytes:
    frame = Frame()
    write(value, frame)
    return frame.content()


def _bytes(kafka_type: str, compact: bool) -> Write:
    is_text = kafka_type == "string"
    length = _uvarint_above if compact else _LENGTHS[kafka_type]

    def write(value: Any, frame: Frame) -> None:
        if value is None:
            frame.tail += length(-1)
        else:
            data = value.encode() if is_text else value
            frame.tail += length(len(data))
            frame.add(data)

    return write


def _array(one: Write, compact: bool) -> Write:
    length = _uvarint_above if compact else _SIZE.pack

    def write(values: Sequence[object] | None, frame: Frame) -> None:
        if values is None:
            frame.tail += length(-1)
            return
        frame.tail += length(len(values))
        for value in values:
            one(value, frame)

    return write


def _nullable(one: Write) -> Write:
    def write(value: Mapping[str, Any] | None, frame: Frame) -> None:
        frame.tail += b"\xff" if value is None else b"\x01"
        if value is not None:
            one(value, frame)

    return write


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _uvarint_above(length: int) -> bytes:
    """Encode a length in compact form, as length + 1. None has the length -1, and so becomes 0."""
    return _uvarint(length + 1)


def _fixed(layout: str) -> Write:
    pack = struct.Struct(layout).pack

    def write(value: Any, frame: Frame) -> None:
        frame.tail += pack(value)

    return write


def _id(value: uuid.UUID | None, frame: Frame) -> None:
    frame.tail += _ZERO_ID if value is None else value.bytes


def _moment(value: int | None, frame: Frame) -> None:
    """Write a time in milliseconds since 1970; -1 if there is none."""
    frame.tail += _INT64.pack(-1 if value is None or value < 0 else value)


_INT64: Final = struct.Struct(">q")
_ONE_BYTE: Final = [bytes([value]) for value in range(0x80)]
_FIXED: Final[dict[str, Write]] = {
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "bool": _fixed(">?"),
    "uuid": _id,
    "error_code": _fixed(">h"),
    "timedelta_i32": _fixed(">i"),
    "timedelta_i64": _fixed(">q"),
    "datetime_i64": _moment,
}
_LENGTHS: Final[dict[str, Callable[[int], bytes]]] = {
    "string": struct.Struct(">h").pack,
    "bytes": _SIZE.pack,
    "records": _SIZE.pack,
}


Message = Mapping[str, Any]
_loading: Final = threading.Lock()
"""Schemas are modules that import each other, on first use. Two threads that import them at once
could deadlock, which Python would end with an error."""


class Schema:
    """The schema of a message and its header, in one version. Immutable, so thread-safe."""

    def __init__(self, entity: Any) -> None:
        self._read = message_reader(entity)
        self._write = message_writer(entity)
        self._read_header = message_reader(entity.__header_schema__)
        self._write_header = message_writer(entity.__header_schema__)

    def encode(self, header: Message, values: Message) -> bytes:
        """Return the whole frame: size, header, body."""
        return in_memory(self.encode_parts(header, values))

    def encode_parts(self, header: Message, values: Message) -> list[BytesLike | FileSlice]:
        """Return the whole frame in pieces. Slices of files are not read."""
        frame = Frame()
        self._write_header(header, frame)
        self._write(values, frame)
        return frame.parts()

    def decode(self, frame: BytesLike, most_elements: int | None = None) -> tuple[Any, Any]:
        """Return the header and the body of a frame without its size, as objects of kio's classes.

        Records are views of ``frame``. Times are integers in milliseconds, except durations. Bytes
        after the body are ignored. ``most_elements`` limits the number of elements in all arrays
        together; by default, the limit is the number of bytes. Raises ``ProtocolError``.
        """
        data = memoryview(frame)
        allowance = Allowance(len(data) if most_elements is None else most_elements)
        try:
            header, at = self._read_header(data, 0, allowance)
            body, _ = self._read(data, at, allowance)
        except (struct.error, IndexError):
            raise ProtocolError(f"the message ends early, after {len(frame)} bytes") from None
        return header, body


@cache
def request_schema(api_key: int, version: int) -> Schema:
    """Return the schema of a request.

    Raises kio's ``UnknownEntity`` for an unknown API or version.
    """
    with _loading:
        return Schema(load_request_schema(api_key, version))


@cache
def response_schema(api_key: int, version: int) -> Schema:
    """Return the schema of a response."""
    with _loading:
        return Schema(load_response_schema(api_key, version))
