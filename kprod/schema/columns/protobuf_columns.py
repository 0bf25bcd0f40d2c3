"""Checks whether Arrow columns fit the fields of a Protobuf message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kprod.errors import RecordTypeError
from kprod.schema.columns.arrow_types import is_bytes, is_list, is_text, plain_kind

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


def check_message(message: Any, kind: Any, path: str = "") -> None:
    """Raise RecordTypeError if a column has no field, or its field would change the values.

    ``message`` is a descriptor. This check does not find single numbers that are too large for
    their field; encoding reports them later.
    """
    kind = plain_kind(kind)
    if message.full_name in (TIMESTAMP, DURATION):
        moments = message.full_name == TIMESTAMP
        if not (pa.types.is_timestamp(kind) and kind.tz if moments else pa.types.is_duration(kind)):
            raise _unfit(path, kind, message.full_name)
        return
    if not pa.types.is_struct(kind):
        raise _unfit(path, kind, f"message {message.full_name}")
    for column in kind:
        inside = f"{path}.{column.name}" if path else column.name
        field = message.fields_by_name.get(column.name)
        if field is None:
            fields = sorted(message.fields_by_name)
            raise RecordTypeError(f"{inside}: {message.full_name} has no such field, but {fields}")
        _check_field(field, plain_kind(column.type), inside)


def _check_field(field: Any, kind: Any, path: str) -> None:
    if pa.types.is_null(kind):
        return
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not pa.types.is_map(kind):
            raise _unfit(path, kind, "map")
        _check_one(entry.fields_by_name["key"], plain_kind(kind.key_type), f"{path}[key]")
        _check_one(entry.fields_by_name["value"], plain_kind(kind.item_type), f"{path}[]")
    elif _is_repeated(field):
        if not is_list(kind):
            raise _unfit(path, kind, "repeated field")
        _check_one(field, plain_kind(kind.value_type), f"{path}[]")
    else:
        _check_one(field, kind, path)


def _is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)  # protobuf 5 has the label instead
    return bool(field.label == field.LABEL_REPEATED if known is None else known)


def _check_one(field: Any, kind: Any, path: str) -> None:
    if field.message_type is not None:
        check_message(field.message_type, kind, path)
        return
    name, fits = _FITS[field.cpp_type]
    if field.type == field.TYPE_BYTES:
        name, fits = "bytes", is_bytes
    if not fits(kind):
        raise _unfit(path, kind, name)


def _is_exact(bits_of_float: int, bits_of_integer: int) -> Callable[[Any], bool]:
    """A check for floats and integers up to these sizes, which a field can represent exactly."""

    def fits(kind: Any) -> bool:
        if pa.types.is_integer(kind):
            return bool(kind.bit_width <= bits_of_integer)
        return bool(pa.types.is_floating(kind) and kind.bit_width <= bits_of_float)

    return fits


_FITS: dict[int, tuple[str, Callable[[Any], bool]]] = {
    1: ("int32", pa.types.is_integer),
    2: ("int64", pa.types.is_integer),
    3: ("uint32", pa.types.is_integer),
    4: ("uint64", pa.types.is_integer),
    5: ("double", _is_exact(64, 32)),
    6: ("float", _is_exact(32, 16)),
    7: ("bool", pa.types.is_boolean),
    8: ("enum", lambda kind: is_text(kind) or pa.types.is_integer(kind)),
    9: ("string", is_text),
}
"""By ``cpp_type`` of a field's descriptor."""


def _unfit(path: str, kind: Any, wanted: str) -> RecordTypeError:
    return RecordTypeError(
        f"{path or 'the value'}: {kind} does not fit into a field of type {wanted}"
    )
