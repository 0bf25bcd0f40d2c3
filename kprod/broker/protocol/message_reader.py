"""Reads Kafka's messages from untrusted bytes, by the schemas of the package kio.

kio has a reader of its own. That reader allocates memory for as many elements as an array
announces, so a malicious message can exhaust the memory and end the process. The reader in this
module trusts no length. It checks that each length fits into the bytes that are left, and limits
the number of array elements in a message. Record batches are views of the request, not copies.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Final, get_args, get_origin

from kio.schema.errors import ErrorCode

from kprod.errors import ProtocolError

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ZERO_TIME: Final = datetime.timedelta(0)
_ZERO: Final[dict[str, object]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": _ZERO_TIME,
    "timedelta_i64": _ZERO_TIME,
    "datetime_i64": EPOCH,
}


@dataclass(frozen=True, slots=True)
class FieldShape:
    """A field of a message. ``kafka_type`` is the name of its primitive type.

    For a struct, ``kafka_type`` is empty and ``struct`` is kio's class. ``tag`` is None unless the
    field is tagged (KIP-482). ``absent`` is the value if the message does not have the field.
    """

    name: str
    kafka_type: str
    struct: Any
    is_array: bool
    nullable: bool
    tag: int | None
    absent: object


def field_shapes(entity: Any) -> Iterator[FieldShape]:
    """Yield the fields of one of kio's classes, in the order in which they are encoded."""
    for field in fields(entity):
        of, nullable = _without_none(field.type)
        is_array = get_origin(of) is tuple
        inner = get_args(of)[0] if is_array else of
        struct = inner if is_dataclass(inner) else None
        kafka_type = field.metadata.get("kafka_type", "")
        absent = field.default
        if absent is MISSING:
            zero = () if is_array else _ZERO.get(kafka_type, 0)
            absent = None if nullable else zero
        tag = field.metadata.get("tag")
        yield FieldShape(field.name, kafka_type, struct, is_array, nullable, tag, absent)


def is_old_form(shape: FieldShape, entity: Any) -> bool:
    """Whether the field is a request's client id. No version writes it in compact form."""
    return shape.name == "client_id" and entity.__name__ == "RequestHeader"


def _without_none(of: Any) -> tuple[Any, bool]:
    some = [arg for arg in get_args(of) if arg is not type(None)]
    is_union = get_origin(of) is not tuple and len(some) < len(get_args(of))
    return (some[0], True) if is_union else (of, False)


class Allowance:
    """How many more array elements one message may have. Each takes about 200 bytes of memory."""

    __slots__ = ("_left",)

    def __init__(self, elements: int) -> None:
        self._left = elements

    def take(self, elements: int) -> None:
        """Use up part of the allowance. Raises ``ProtocolError`` if too little is left."""
        self._left -= elements
        if self._left < 0:
            raise ProtocolError(f"the message has {-self._left} elements too many")


Read = Callable[[memoryview, int, Allowance], tuple[Any, int]]
"""Takes the message, a position, and the elements left; returns a value and the position after it.

Raises ``ProtocolError``, or ``struct.error`` or ``IndexError`` if the message ends early.
"""

_UVARINT_BITS: Final = 32
_ZERO_ID: Final = bytes(16)


@cache
def message_reader(entity: Any) -> Read:
    """Make a function that reads one of kio's classes."""
    always = [(s.name, _field(s, entity)) for s in field_shapes(entity) if s.tag is None]
    tagged = {s.tag: (s.name, _field(s, entity)) for s in field_shapes(entity) if s.tag is not None}
    absent = {s.name: s.absent for s in field_shapes(entity) if s.tag is not None}
    flexible = entity.__flexible__

    def read(data: memoryview, at: int, allowance: Allowance) -> tuple[Any, int]:
        values = absent.copy()
        for name, read_field in always:
            values[name], at = read_field(data, at, allowance)
        if flexible:
            at = _read_tagged(data, at, allowance, tagged, values)
        return entity(**values), at

    return read


def _read_tagged(
    data: memoryview,
    at: int,
    allowance: Allowance,
    known: dict[int, tuple[str, Read]],
    values: dict[str, object],
) -> int:
    count, at = _uvarint(data, at)
    if count:
        allowance.take(count)
    last = -1
    for _ in range(count):
        tag, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        end = _end(data, at, size)
        if tag <= last:
            raise ProtocolError(f"tag {tag} after tag {last}")
        if tag in known:
            name, read_field = known[tag]
            values[name], stop = read_field(data[:end], at, allowance)
            if stop != end:
                raise ProtocolError(f"tag {tag} has {end - stop} bytes too many")
        last, at = tag, end
    return at


def _field(shape: FieldShape, entity: Any) -> Read:
    compact = entity.__flexible__ and not is_old_form(shape, entity)
    if shape.struct is not None:
        one = message_reader(shape.struct)
    else:
        one = _primitive(shape.kafka_type, compact, shape.nullable and not shape.is_array)
    return _array(one, compact, shape.nullable) if shape.is_array else one


def _primitive(kafka_type: str, compact: bool, nullable: bool) -> Read:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type]
    length = _compact_length if compact else _LENGTHS[kafka_type]
    decode = _DECODE[kafka_type]

    def read(data: memoryview, at: int, allowance: Allowance) -> tuple[Any, int]:
        size, at = length(data, at, allowance)
        if size < 0:
            if size < -1 or not nullable:
                raise ProtocolError(f"a {kafka_type} of {size} bytes")
            return None, at
        end = _end(data, at, size)
        return decode(data[at:end]), end

    return read


def _array(one: Read, compact: bool, nullable: bool) -> Read:
    length = _compact_length if compact else _FIXED["int32"]

    def read(data: memoryview, at: int, allowance: Allowance) -> tuple[Any, int]:
        count, at = length(data, at, allowance)
        if count < 0:
            if count < -1 or not nullable:
                raise ProtocolError(f"an array of {count} elements")
            return None, at
        # Each element takes a byte at least.
        _end(data, at, count)
        allowance.take(count)
        found = []
        for _ in range(count):
            value, at = one(data, at, allowance)
            found.append(value)
        return tuple(found), at

    return read


def _end(data: memoryview, at: int, size: int) -> int:
    if size > len(data) - at:
        raise ProtocolError(f"a length of {size} with {len(data) - at} bytes left")
    return at + size


def _uvarint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _UVARINT_BITS:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ProtocolError("a varint of more than 5 bytes")


def _compact_length(data: memoryview, at: int, _: Allowance) -> tuple[int, int]:
    length, at = _uvarint(data, at)
    return length - 1, at


def _fixed(layout: str, convert: Callable[[Any], Any] | None = None) -> Read:
    compiled = struct.Struct(layout)
    unpack, size = compiled.unpack_from, compiled.size

    def read(data: memoryview, at: int, _: Allowance) -> tuple[Any, int]:
        (value,) = unpack(data, at)
        return (value if convert is None else convert(value)), at + size

    return read


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a string that is not UTF-8: {error}") from None


def _milliseconds(value: int) -> datetime.timedelta:
    try:
        return datetime.timedelta(milliseconds=value)
    except OverflowError:
        raise ProtocolError(f"a time of {value} ms") from None


def _error_code(value: int) -> ErrorCode:
    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.unknown_server_error


def _id(value: bytes) -> uuid.UUID | None:
    return None if value == _ZERO_ID else uuid.UUID(bytes=value)


_FIXED: Final[dict[str, Read]] = {
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "bool": _fixed(">?"),
    "uuid": _fixed(">16s", _id),
    "error_code": _fixed(">h", _error_code),
    "timedelta_i32": _fixed(">i", _milliseconds),
    "timedelta_i64": _fixed(">q", _milliseconds),
    "datetime_i64": _fixed(">q"),
}
_LENGTHS: Final = {"string": _fixed(">h"), "bytes": _fixed(">i"), "records": _fixed(">i")}
_DECODE: Final[dict[str, Callable[[memoryview], Any]]] = {
    "string": _text,
    "bytes": bytes,
    "records": memoryview,
}
