"""Kafka's messages as bytes, by way of kio's schemas.

Every version of a message is a type of its own. Whoever sends one gives a plain mapping of all
the fields it knows, in kio's spelling, times as integers in milliseconds; ``Schema`` keeps those
that the version has, and fills in zero, null or empty for the ones that are not given.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from io import BytesIO
from typing import Any, Final, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

Message = Mapping[str, Any]

_SIZE: Final = struct.Struct(">i")
_ZERO_TIME: Final = datetime.timedelta(0)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ZERO: Final[dict[str, object]] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": _ZERO_TIME,
    "timedelta_i64": _ZERO_TIME,
}


class Schema:
    """One message type at one version, with its header. Immutable, for any thread."""

    def __init__(self, entity: Any) -> None:
        self._read = entity_reader(entity)
        self._write = entity_writer(entity)
        self._make = _maker(entity)
        self._header_type = entity.__header_schema__
        self._read_header = entity_reader(self._header_type)
        self._write_header = entity_writer(self._header_type)

    def encode(self, header: Message, values: Message) -> bytes:
        """The whole frame: size, header, body."""
        frame = BytesIO()
        frame.write(_SIZE.pack(0))
        self._write_header(frame, self._header_type(**header))
        self._write(frame, self._make(values))
        with frame.getbuffer() as view:
            _SIZE.pack_into(view, 0, len(view) - _SIZE.size)
        return frame.getvalue()

    def decode(self, frame: bytes | memoryview) -> tuple[Any, Any]:
        """Header and body of a frame without its size. kio's errors, or ``ValueError``."""
        header, at = self._read_header(frame, 0)
        body, _ = self._read(frame, at)
        return header, body


@cache
def request_schema(api_key: int, version: int) -> Schema:
    """The schema of a request; kio's ``UnknownEntity`` when there is none."""
    return Schema(load_request_schema(api_key, version))


@cache
def response_schema(api_key: int, version: int) -> Schema:
    """The schema of a response."""
    return Schema(load_response_schema(api_key, version))


def _maker(entity: Any) -> Callable[[Message], Any]:
    parts = [(field.name, _filler(field)) for field in fields(entity)]

    def make(values: Message) -> Any:
        return entity(**{name: fill(values.get(name, MISSING)) for name, fill in parts})

    return make


def _filler(field: Field[Any]) -> Callable[[Any], Any]:
    """What turns the given value of a field, or ``MISSING``, into the one kio wants."""
    convert, zero = _kind(field)
    default = zero if field.default is MISSING else field.default

    def fill(value: Any) -> Any:
        if value is MISSING:
            return default
        return None if value is None else convert(value)

    return fill


def _kind(field: Field[Any]) -> tuple[Callable[[Any], Any], object]:
    """How to convert a value of the field, and its zero."""
    of, optional = _without_none(field.type)
    if get_origin(of) is tuple:
        inner = get_args(of)[0]
        return (_each(_maker(inner)) if is_dataclass(inner) else tuple), None if optional else ()
    if is_dataclass(of):
        return _maker(of), None
    kafka_type = field.metadata["kafka_type"]
    return _CONVERT.get(kafka_type, _same), None if optional else _ZERO.get(kafka_type, 0)


def _without_none(of: Any) -> tuple[Any, bool]:
    some = [arg for arg in get_args(of) if arg is not type(None)]
    is_union = get_origin(of) is not tuple and len(some) < len(get_args(of))
    return (some[0], True) if is_union else (of, False)


def _each(make: Callable[[Message], Any]) -> Callable[[Iterable[Message]], tuple[Any, ...]]:
    return lambda values: tuple(map(make, values))


def _same(value: Any) -> Any:
    return value


def _milliseconds(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def _moment(value: int) -> datetime.datetime | None:
    return None if value < 0 else _EPOCH + datetime.timedelta(milliseconds=value)


_CONVERT: Final[dict[str, Callable[[Any], Any]]] = {
    "error_code": ErrorCode,
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _moment,
}
