"""Kafka's messages as bytes, by way of kio's schemas.

Every version of a message is a type of its own. Whoever sends one gives a plain mapping of all
the fields it knows, in kio's spelling, times as integers in milliseconds; ``Schema`` keeps those
that the version has, and fills in zero, null or empty for the ones that are not given.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from kprod.broker.message_reader import message_reader
from kprod.broker.message_shape import FieldShape, field_shapes
from kprod.errors import ProtocolError

Message = Mapping[str, Any]

_SIZE: Final = struct.Struct(">i")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Schema:
    """One message type at one version, with its header. Immutable, for any thread."""

    def __init__(self, entity: Any) -> None:
        self._read = message_reader(entity)
        self._write = entity_writer(entity)
        self._make = _maker(entity)
        self._header_type = entity.__header_schema__
        self._read_header = message_reader(self._header_type)
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

    def decode(self, frame: bytes) -> tuple[Any, Any]:
        """Header and body of a frame without its size, as kio's types.

        Records are views of ``frame``; times other than durations are integers. Bytes behind the
        body are ignored. Raises ``ProtocolError``.
        """
        data = memoryview(frame)
        try:
            header, at = self._read_header(data, 0)
            body, _ = self._read(data, at)
        except (struct.error, IndexError):
            raise ProtocolError(f"the message ends early, after {len(frame)} bytes") from None
        return header, body


@cache
def request_schema(api_key: int, version: int) -> Schema:
    """The schema of a request; kio's ``UnknownEntity`` when there is none."""
    return Schema(load_request_schema(api_key, version))


@cache
def response_schema(api_key: int, version: int) -> Schema:
    """The schema of a response."""
    return Schema(load_response_schema(api_key, version))


@cache
def _maker(entity: Any) -> Callable[[Message], Any]:
    shapes = [(shape.name, shape.absent, _converter(shape)) for shape in field_shapes(entity)]

    def make(values: Message) -> Any:
        made = {}
        for name, absent, convert in shapes:
            value = values.get(name, absent)
            given = value is not absent and value is not None
            made[name] = convert(value) if given and convert else value
        return entity(**made)

    return make


def _converter(shape: FieldShape) -> Callable[[Any], Any] | None:
    """What turns the given value of a field into the one kio wants; None if they are the same."""
    if shape.struct is not None:
        make = _maker(shape.struct)
        return (lambda given: tuple(map(make, given))) if shape.is_array else make
    return tuple if shape.is_array else _CONVERT.get(shape.kafka_type)


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
