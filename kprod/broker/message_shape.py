"""What kio's message classes say about their fields, in a form that is easy to act on."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Final, get_args, get_origin

from kio.schema.errors import ErrorCode

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
    """One field. ``kafka_type`` names a primitive; for a struct it is empty and ``struct`` is set.

    ``tag`` is None for a field that is always there; ``absent`` is its value when it is not given.
    """

    name: str
    kafka_type: str
    struct: Any
    is_array: bool
    nullable: bool
    tag: int | None
    absent: object


def field_shapes(entity: Any) -> Iterator[FieldShape]:
    """The fields of one of kio's classes, in the order of the wire."""
    for field in fields(entity):
        of, nullable = _without_none(field.type)
        is_array = get_origin(of) is tuple
        inner = get_args(of)[0] if is_array else of
        struct = inner if is_dataclass(inner) else None
        kafka_type = field.metadata.get("kafka_type", "")
        absent = field.default
        if absent is MISSING:
            absent = None if nullable else _zero(kafka_type, is_array)
        tag = field.metadata.get("tag")
        yield FieldShape(field.name, kafka_type, struct, is_array, nullable, tag, absent)


def is_old_form(shape: FieldShape, entity: Any) -> bool:
    """The client id of a request has one form in all versions: any broker can read it."""
    return shape.name == "client_id" and entity.__name__ == "RequestHeader"


def _without_none(of: Any) -> tuple[Any, bool]:
    some = [arg for arg in get_args(of) if arg is not type(None)]
    is_union = get_origin(of) is not tuple and len(some) < len(get_args(of))
    return (some[0], True) if is_union else (of, False)


def _zero(kafka_type: str, is_array: bool) -> object:
    return () if is_array else _ZERO.get(kafka_type, 0)
