"""A struct column as Avro records at once, where each field has one form in Avro

Everything here gives the bytes that fastavro makes of the cells as Python objects. None says that a
column has to be encoded cell by cell: it has what Avro cannot hold, or a form that is rare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprod.schema.flat_avro import FlatField
from kprod_ext.avro_columns import encode_columns

INT32 = (-(2**31), 2**31 - 1)
DAYS = (-719_162, 2_932_896)
MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The years 1 to 9999, which ``date`` and ``datetime`` have, from 1970 on."""

Cells = tuple[str, Any]
"""A layout of ``encode_columns``, and an array that has it."""


def avro_records(fields: list[FlatField], column: Any, prefix: bytes) -> Any:
    """The column as ``large_binary``, null for null; None: it has to be encoded cell by cell."""
    import pyarrow as pa

    if not pa.types.is_struct(column.type):
        return None
    if column.null_count:
        records = avro_records(fields, column.drop_null(), prefix)
        return None if records is None else records.take(_places(column))
    names = [column.type.field(number).name for number in range(column.type.num_fields)]
    children = dict(zip(names, column.flatten(), strict=True))
    if len(children) != len(names):  # two of one name
        return None
    found = [_cells(field, children.get(field[0])) for field in fields]
    cells = [each for each in found if each is not None]
    if len(cells) != len(found):
        return None
    described = [
        (layout, null_branch, array.offset, *_addresses(array))
        for (layout, array), (_, _, null_branch, _, _) in zip(cells, fields, strict=True)
    ]
    encoded = encode_columns(described, len(column), prefix)
    if encoded is None:
        return None
    buffers = [None, *map(pa.py_buffer, encoded)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(column), buffers)


def _places(column: Any) -> Any:
    """Where the cells of a column are without its nulls; null for a null."""
    import pyarrow as pa
    from pyarrow import compute

    before = compute.cumulative_sum(column.is_valid().cast(pa.int64()))
    return compute.if_else(column.is_valid(), compute.subtract(before, 1), None)


def _addresses(array: Any) -> tuple[int, int, int]:
    buffers = [0 if each is None else each.address for each in array.buffers()]
    return buffers[0], buffers[1], buffers[2] if len(buffers) > 2 else 0


def _cells(field: FlatField, child: Any) -> Cells | None:
    """The cells of a field in a layout that is written as they are, None if they have none."""
    import pyarrow as pa

    _, kind, _, _, extra = field
    if child is None:
        return None
    try:
        if kind == "other":
            written = [extra(cell) for cell in child.to_pylist()]
            return "plain", pa.array(written, pa.large_binary())
        return _FORMS[kind](child, extra)
    except Exception:  # of Arrow or fastavro: encoding the cells one by one tells which
        return None


def _bits(child: Any, _extra: Any) -> Cells | None:
    from pyarrow import types

    return ("bits", child) if types.is_boolean(child.type) else None


def _whole_numbers(within: tuple[int, int] | None) -> Callable[[Any, Any], Cells | None]:
    def form(child: Any, _extra: Any) -> Cells | None:
        import pyarrow as pa

        if not pa.types.is_integer(child.type):
            return None
        numbers = child.cast(pa.int64())
        return ("integers", numbers) if within is None or _lies(numbers, within) else None

    return form


def _lies(numbers: Any, within: tuple[int, int]) -> bool:
    from pyarrow import compute

    ends = compute.min_max(numbers).as_py()
    return ends["min"] is None or (within[0] <= ends["min"] and ends["max"] <= within[1])


def _numbers(layout: str) -> Callable[[Any, Any], Cells | None]:
    def form(child: Any, _extra: Any) -> Cells | None:
        import pyarrow as pa

        known = pa.types.is_integer(child.type) or pa.types.is_floating(child.type)
        return (layout, child.cast(pa.float64())) if known else None

    return form


def _texts(child: Any, _extra: Any) -> Cells | None:
    import pyarrow as pa

    if not (pa.types.is_string(child.type) or pa.types.is_large_string(child.type)):
        return None
    child.validate(full=True)  # Spark lets any bytes pass for text
    return "texts", child.cast(pa.large_string())


def _binary(child: Any, size: int | None) -> Cells | None:
    import pyarrow as pa
    from pyarrow import compute

    if not (pa.types.is_binary(child.type) or pa.types.is_large_binary(child.type)):
        return None
    if size is not None and not _lies(compute.binary_length(child), (size, size)):
        return None
    return "texts" if size is None else "plain", child.cast(pa.large_binary())


def _symbols(child: Any, numbers: dict[str, int]) -> Cells | None:
    import pyarrow as pa
    from pyarrow import compute

    found = compute.index_in(child, value_set=pa.array(list(numbers), child.type))
    known = found.null_count == child.null_count
    return ("integers", found.cast(pa.int64())) if known else None


def _days(child: Any, _extra: Any) -> Cells | None:
    import pyarrow as pa

    if not pa.types.is_date32(child.type):
        return None
    days = child.cast(pa.int32()).cast(pa.int64())
    return ("integers", days) if _lies(days, DAYS) else None


def _moments(unit: str) -> Callable[[Any, Any], Cells | None]:
    """Moments with a zone; without one they would be local times of this process."""

    def form(child: Any, _extra: Any) -> Cells | None:
        import pyarrow as pa
        from pyarrow import compute

        if not pa.types.is_timestamp(child.type) or child.type.unit != "us" or not child.type.tz:
            return None
        if not _lies(child.cast(pa.int64()), MICROS):
            return None
        if unit == "ms":
            plain = compute.floor_temporal(child.cast(pa.timestamp("us")), unit="millisecond")
            child = plain.cast(pa.timestamp("ms"))
        return "integers", child.cast(pa.int64())

    return form


_FORMS: dict[str, Callable[[Any, Any], Cells | None]] = {
    "boolean": _bits,
    "int": _whole_numbers(INT32),
    "long": _whole_numbers(None),
    "float": _numbers("floats"),
    "double": _numbers("doubles"),
    "string": _texts,
    "bytes": _binary,
    "fixed": _binary,
    "enum": _symbols,
    "int-date": _days,
    "long-timestamp-millis": _moments("ms"),
    "long-timestamp-micros": _moments("us"),
}
