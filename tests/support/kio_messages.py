"""Messages read and written by kio, an independent implementation of the protocol.

Its reader must not get damaged bytes: a count that is too high ends the process.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
NOTHING: dict[str, Any] = {
    "string": "",
    "bool": False,
    "bytes": b"",
    "uuid": None,
    "datetime_i64": None,
}
"""Defaults by type, for fields without a default in kio; a number is 0."""


def response(api: int, version: int, **values: Any) -> memoryview:
    """The body of a response.

    Structures are dicts, error codes and milliseconds are numbers. Fields that the version lacks
    are ignored; missing values are empty or 0.
    """
    entity = made(_schema(api, version, EntityType.response), values)
    body = io.BytesIO()
    entity_writer(type(entity))(body, entity)
    return memoryview(body.getvalue())


def read_request(api: int, version: int, frame: bytes) -> tuple[Any, Any]:
    """Header and body of a frame with its size prefix; no byte may be left over."""
    entity = _schema(api, version, EntityType.request)
    size = int.from_bytes(frame[:4], "big")
    assert size == len(frame) - 4
    header, taken = entity_reader(entity.__header_schema__)(frame, 4)
    body, rest = entity_reader(entity)(frame, 4 + taken)
    assert taken + rest == size
    return header, body


@cache
def _schema(api: int, version: int, kind: Any) -> Any:
    (found,) = (
        entity
        for entity in vars(load_payload_module(api, version, kind)).values()
        if is_dataclass(entity) and getattr(entity, "__type__", None) is kind
    )
    return found


def made(entity: Any, values: dict[str, Any]) -> Any:
    return entity(
        **{
            name: convert(values[name]) if name in values else absent
            for name, (convert, absent) in _plan(entity).items()
            if name in values or absent is not MISSING
        }
    )


@cache
def _plan(entity: Any) -> dict[str, tuple[Callable[[Any], Any], Any]]:
    """For each field the conversion of a value, and the default."""
    hints = get_type_hints(entity)
    return {field.name: _field(hints[field.name], field) for field in fields(entity)}


def _field(hint: Any, field: Field[Any]) -> tuple[Callable[[Any], Any], Any]:
    kind = field.metadata.get("kafka_type", "")
    structure = _structure(hint)
    if any(get_origin(each) is tuple for each in (hint, *get_args(hint))):
        one = _scalar(kind) if structure is None else lambda value: made(structure, value)
        return lambda value: None if value is None else tuple(map(one, value)), _absent(field, ())
    if structure is not None:
        return lambda value: None if value is None else made(structure, value), _absent(field, None)
    convert = _scalar(kind)
    return convert, _absent(field, convert(NOTHING.get(kind, 0)))


def _structure(hint: Any) -> Any:
    """The entity type in a hint, or None."""
    if is_dataclass(hint):
        return hint
    return next((found for each in get_args(hint) if (found := _structure(each))), None)


def _scalar(kind: str) -> Callable[[Any], Any]:
    if kind == "error_code":
        return _error_code
    if kind.startswith("timedelta"):
        return lambda ms: datetime.timedelta(milliseconds=ms)
    if kind.startswith("datetime"):
        return lambda ms: None if ms is None else EPOCH + datetime.timedelta(milliseconds=ms)
    return lambda value: value


def _error_code(number: int) -> Any:
    """kio's error code, or a stand-in for an unknown number."""
    try:
        return ErrorCode(number)
    except ValueError:
        return SimpleNamespace(value=number)


def _absent(field: Field[Any], nothing: Any) -> Any:
    has_default = field.default is not MISSING or field.default_factory is not MISSING
    return MISSING if has_default else nothing
