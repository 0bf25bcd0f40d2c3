"""Checks of Arrow types and conversions of cells, shared by the modules that convert columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import compute, types

from kprod.errors import RecordTypeError


def is_text(kind: Any) -> bool:
    """Whether the type is text, of any width."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: Any) -> bool:
    """Whether the type is bytes, of any width."""
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_list(kind: Any) -> bool:
    """Whether the type is a list with offsets."""
    return bool(types.is_list(kind) or types.is_large_list(kind))


def is_variant(kind: Any) -> bool:
    """Whether the type is Spark's VARIANT: a struct with a mark in the metadata of a field."""
    return _is_marked(kind, "metadata", b"variant")


def is_spatial(kind: Any) -> bool:
    """Whether the type is Spark's GEOMETRY or GEOGRAPHY, which is marked in the same way."""
    return _is_marked(kind, "wkb", b"geometry") or _is_marked(kind, "wkb", b"geography")


def _is_marked(kind: Any, name: str, mark: bytes) -> bool:
    return types.is_struct(kind) and any(
        field.name == name and mark in (field.metadata or ()) for field in kind
    )


def plain_kind(kind: Any) -> Any:
    """The type without a dictionary or an extension type around it."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_kind(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return plain_kind(kind.value_type)
    return kind


def plain_values(column: Any) -> Any:
    """The column without a dictionary or an extension type around its cells."""
    if isinstance(column.type, pa.BaseExtensionType):
        return plain_values(column.storage)
    if pa.types.is_dictionary(column.type):
        return plain_values(column.dictionary_decode())
    return column


def of_lists(column: Any, *values: Any) -> tuple[Any, list[Any]]:
    """The offsets of a column of lists or maps, from 0, and the part of ``values`` that they use.

    The values of a slice are those of the whole column.
    """
    offsets = column.offsets.cast(pa.int64()) if len(column) else pa.array([0])
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return compute.subtract(offsets, start), [part.slice(start, end - start) for part in values]


def is_payload(kind: Any) -> bool:
    """Whether cells of this type are bytes or text, so that they need no format."""
    kind = plain_kind(kind)
    return is_text(kind) or is_bytes(kind) or bool(pa.types.is_null(kind))


def not_utf8(texts: Any) -> dict[int, str]:
    """A reason by row for each text that is not valid UTF-8. Spark accepts any bytes as text."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        cells = texts.cast(pa.large_binary()).to_pylist()
        return {row: why for row, cell in enumerate(cells) if (why := _undecodable(cell))}
    return {}


def _undecodable(text: bytes | None) -> str | None:
    try:
        (text or b"").decode()
    except UnicodeDecodeError as error:
        return error.reason
    return None


TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""How many of each unit are in a second."""


def in_unit(column: Any, unit: str, wanted: str) -> Any:
    """The times of a column as integers in another unit, rounded down.

    Raises ArrowInvalid if a result exceeds 64 bits, which cannot happen with Spark's columns.
    """
    column = column.cast(pa.int32()) if column.type.bit_width == 32 else column
    ticks = column.cast(pa.int64())
    if TICKS[wanted] >= TICKS[unit]:
        factor = TICKS[wanted] // TICKS[unit]
        return ticks if factor == 1 else compute.multiply_checked(ticks, factor)
    parts = TICKS[unit] // TICKS[wanted]
    cut = compute.divide(ticks, parts)  # towards zero, which is upwards before 1970
    above = compute.greater(compute.multiply(cut, parts), ticks)
    return compute.subtract(cut, above.cast(pa.int64()))


def check_python(what: str, kind: Any) -> None:
    """Raise RecordTypeError for a type that only Spark can read. Its text begins with ``what``."""
    if is_variant(kind) or is_spatial(kind):
        raise RecordTypeError(
            f"{what}: a VARIANT, GEOMETRY or GEOGRAPHY has no form in Python: convert it in a"
            " query, a VARIANT by to_json"
        )
    for number in range(kind.num_fields):
        check_python(what, kind.field(number).type)


def python_values(column: Any) -> list[Any]:
    """The cells, with maps as dicts. Raises RecordTypeError if Python cannot represent a cell."""
    check_python("a column", column.type)
    try:
        cells: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    except (ArithmeticError, KeyError, ValueError, pa.ArrowException) as error:
        raise RecordTypeError(f"a cell has no form in Python: {error}") from error
    return cells


def python_cells(column: Any) -> Iterator[Any]:
    """Like ``python_values``, but with an error in place of a cell that Python cannot represent."""
    try:
        yield from python_values(column)
    except RecordTypeError:
        for row in range(len(column)):
            try:
                yield from python_values(column.slice(row, 1))
            except RecordTypeError as error:
                yield error
