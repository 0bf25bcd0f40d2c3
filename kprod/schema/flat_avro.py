"""Finds the fields of an Avro record that the compiled encoder writes itself."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeAlias

from kprod.schema.avro_numbers import number_check

PRIMITIVE = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes"})
LOGICAL = frozenset({"int-date", "long-timestamp-millis", "long-timestamp-micros"})

FlatField: TypeAlias = tuple[str, str, int, Any, Any]
"""A field as ``kprod_ext.avro.FlatRecordEncoder`` takes it."""


def flat_fields(schema: Any) -> list[FlatField] | None:
    """The fields of a record for the compiled encoder; None if fastavro has to write all.

    ``schema`` was parsed by fastavro. A field of a complex type, or of some logical types, is
    written separately by fastavro, unless the field refers to a type by name.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record" or "logicalType" in schema:
        return None
    fields = [_flat(field) for field in schema["fields"]]
    found = [field for field in fields if field is not None]
    return found if len(found) == len(fields) else None


def _flat(field: dict[str, Any]) -> FlatField | None:
    kind, null_branch, extra = "other", -1, None
    simple = _simple(field["type"])
    if simple is None and isinstance(field["type"], list) and len(field["type"]) == 2:
        null_branch = field["type"].index("null") if "null" in field["type"] else -1
        simple = _simple(field["type"][1 - null_branch]) if null_branch >= 0 else None
    if simple is not None:
        kind, extra = simple
    else:
        null_branch, extra = -1, _own_writer(field["type"])
        if extra is None:
            return None
    return field["name"], kind, null_branch, field.get("default"), extra


def _simple(kind: Any) -> tuple[str, Any] | None:
    """The compiled encoder's name of a type, and what it needs to write values of that type."""
    if isinstance(kind, str):
        return (kind, None) if kind in PRIMITIVE else None
    if not isinstance(kind, dict):
        return None
    name = kind["type"]
    if "logicalType" in kind:
        name = f"{name}-{kind['logicalType']}"
        return (name, None) if name in LOGICAL else None
    if name == "enum":
        return name, {symbol: number for number, symbol in enumerate(kind["symbols"])}
    if name == "fixed":
        return name, kind["size"]
    return (name, None) if name in PRIMITIVE else None


def _own_writer(kind: Any) -> Callable[[Any], bytes] | None:
    """fastavro's writer of a single field; None if the field's type is defined elsewhere."""
    from fastavro import parse_schema
    from fastavro.schema import UnknownType

    try:
        return avro_writer(parse_schema(kind))
    except UnknownType:
        return None


def avro_writer(schema: Any) -> Callable[[Any], bytes]:
    """A function that encodes an object with fastavro, which has parsed ``schema``.

    The function raises fastavro's exceptions, and ValueError for a number that exceeds its type.
    """
    from fastavro import schemaless_writer

    check = number_check(schema)

    def write(data: Any) -> bytes:
        if check is not None:
            check(data)
        buffer = BytesIO()
        schemaless_writer(buffer, schema, data)
        return buffer.getvalue()

    return write
