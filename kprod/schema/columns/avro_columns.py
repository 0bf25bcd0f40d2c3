"""Encodes Arrow columns as Avro, column by column, including nested columns.

``avro_encoder`` makes an encoder for a schema and an Arrow type, or raises RecordTypeError. The
Spark driver makes one to check the columns of a DataFrame, and each task makes one for its batches.
The bytes are those of Spark's ``to_avro``. This module also accepts some types that ``to_avro``
rejects: integers for a smaller type, and decimals for another precision or a larger scale. In these
cases, a row is invalid if the Avro type cannot represent a cell exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyarrow import compute

from kprod.errors import RecordTypeError, SerializationError
from kprod.schema.columns.arrow_types import (
    in_unit,
    is_bytes,
    is_list,
    is_spatial,
    is_text,
    is_variant,
    not_utf8,
    plain_kind,
    plain_values,
)
from kprod.schema.encoding import AvroEncoding
from kprod_ext.avro_columns import encode_columns

INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
FLOAT_INTEGERS = (-(2**24), 2**24)
DOUBLE_INTEGERS = (-(2**53), 2**53)
"""The ranges in which a float and a double can represent every integer."""


class Cells(NamedTuple):
    """An array in a layout of ``encode_columns``. ``bad`` marks invalid cells (None: none)."""

    layout: str
    array: Any
    bad: Any = None


Mark: TypeAlias = Callable[[str], None]
"""Called with the reason why some cell is bad."""
Leaf: TypeAlias = Callable[[Any, Mark], Cells]
Rule: TypeAlias = Callable[[Any, Any, bool], "Leaf | str | None"]
"""Called with the arguments of ``leaf``: Avro type, Arrow type, ``narrow``."""


def leaf(schema: Any, kind: Any, narrow: bool) -> Leaf | str | None:
    """A function that converts cells of an Arrow type for an Avro type; else a hint, or None.

    A hint says how to make the types fit. With ``narrow``, the Avro type may be too small for some
    values of the Arrow type.
    """
    if isinstance(schema, str):
        rule = _RULES.get(schema)
    else:
        rule = _RULES.get(f"{schema['type']}-{schema.get('logicalType')}") or _RULES.get(
            schema["type"]
        )
    return None if rule is None else rule(schema, kind, narrow)


def either(one: Any, other: Any) -> Any:
    """The cells that are bad in at least one of two masks. None means that no cell is bad."""
    if one is None or other is None:
        return other if one is None else one
    return compute.or_(one, other)


def binary_cells(column: Any, layout: str) -> Cells:
    """The bytes of a column of any text or binary type."""
    return Cells(layout, column.cast(pa.large_binary()))


def _marked(bad: Any, reason: str, mark: Mark) -> Any:
    """Call ``mark`` and return ``bad``, with False for nulls. If no cell is bad, return None."""
    if not compute.any(bad).as_py():
        return None
    mark(reason)
    return compute.fill_null(bad, False)


def _boolean(_schema: Any, kind: Any, _narrow: bool) -> Leaf | None:
    return (lambda column, _mark: Cells("bits", column)) if pa.types.is_boolean(kind) else None


def _numbers(layout: str, within: tuple[int, int], name: str) -> Rule:
    """The rule for integers within limits, written as integers or as floats."""

    def rule(_schema: Any, kind: Any, narrow: bool) -> Leaf | None:
        if not pa.types.is_integer(kind):
            return None
        signed = pa.types.is_signed_integer(kind)
        least = -(2 ** (kind.bit_width - 1)) if signed else 0
        most = 2 ** (kind.bit_width - signed) - 1
        wanted = pa.int64() if layout == "integers" else pa.float64()
        if within[0] <= least and most <= within[1]:
            return lambda column, _mark: Cells(layout, column.cast(wanted))
        if not narrow:
            return None
        low, high = pa.scalar(max(least, within[0]), kind), pa.scalar(min(most, within[1]), kind)

        def encode(column: Any, mark: Mark) -> Cells:
            outside = compute.or_(compute.less(column, low), compute.greater(column, high))
            bad = _marked(outside, f"an integer that no {name} has", mark)
            if bad is not None:
                column = compute.if_else(bad, low, column)
            return Cells(layout, column.cast(wanted), bad)

        return encode

    return rule


def _floats(layout: str, most_bits: int, integers: Rule) -> Rule:
    def rule(schema: Any, kind: Any, narrow: bool) -> Leaf | str | None:
        if not pa.types.is_floating(kind):
            return integers(schema, kind, narrow)
        if kind.bit_width > most_bits:
            return "digits would be lost: cast the column, or say double in the schema"
        return lambda column, _mark: Cells(layout, column.cast(pa.float64()))

    return rule


def _text(_schema: Any, kind: Any, _narrow: bool) -> Leaf | None:
    return _encode_text if is_text(kind) else None


def _encode_text(column: Any, mark: Mark) -> Cells:
    cells, unreadable = binary_cells(column, "texts"), not_utf8(column)
    if not unreadable:
        return cells
    bad = pa.array([row in unreadable for row in range(len(column))], pa.bool_())
    return cells._replace(bad=_marked(bad, "a text that is no UTF-8", mark))


def _bytes(_schema: Any, kind: Any, _narrow: bool) -> Leaf | None:
    return (lambda column, _mark: binary_cells(column, "texts")) if is_bytes(kind) else None


def _fixed(schema: Any, kind: Any, _narrow: bool) -> Leaf | None:
    if not is_bytes(kind):
        return None

    def encode(column: Any, mark: Mark) -> Cells:
        cells = binary_cells(column, "plain")
        other = compute.not_equal(compute.binary_length(cells.array), schema["size"])
        return cells._replace(bad=_marked(other, f"not of {schema['size']} bytes", mark))

    return encode


def _enum(schema: Any, kind: Any, _narrow: bool) -> Leaf | None:
    if not is_text(kind):
        return None

    def encode(column: Any, mark: Mark) -> Cells:
        symbols = pa.array(schema["symbols"], pa.large_string())
        found = compute.index_in(column.cast(pa.large_string()), value_set=symbols)
        unknown = compute.and_(found.is_null(), column.is_valid())
        bad = _marked(unknown, f"none of the symbols {', '.join(schema['symbols'])}", mark)
        return Cells("integers", found.cast(pa.int64()), bad)

    return encode


def _int(schema: Any, kind: Any, narrow: bool) -> Leaf | str | None:
    """Integers and dates. Like ``to_avro``, accepts a date for an int without a logical type."""
    if pa.types.is_date32(kind) and _logical(schema) in (None, "date"):
        return lambda column, _mark: Cells("integers", column.cast(pa.int32()).cast(pa.int64()))
    return _numbers("integers", INT32, "int")(schema, kind, narrow)


def _long(schema: Any, kind: Any, narrow: bool) -> Leaf | str | None:
    """Integers. Like ``to_avro``, also times and durations for a long without a logical type."""
    if _logical(schema) is None:
        if pa.types.is_timestamp(kind):
            return _ticks(kind.unit, "ms")
        if pa.types.is_duration(kind):
            return _ticks(kind.unit, "us")
    return _numbers("integers", INT64, "long")(schema, kind, narrow)


def _logical(schema: Any) -> Any:
    return None if isinstance(schema, str) else schema.get("logicalType")


def _moments(unit: str, *, zoned: bool) -> Rule:
    def rule(schema: Any, kind: Any, narrow: bool) -> Leaf | str | None:
        if not pa.types.is_timestamp(kind):
            return _numbers("integers", INT64, "long")(schema, kind, narrow)
        if bool(kind.tz) == zoned:
            return _ticks(kind.unit, unit)
        if zoned:
            return (
                "which moment it is depends on a zone: cast it to TIMESTAMP, or say local-timestamp"
            )
        return "cast it to TIMESTAMP_NTZ, or say timestamp in the schema"

    return rule


def _time(unit: str) -> Rule:
    def rule(schema: Any, kind: Any, narrow: bool) -> Leaf | str | None:
        if pa.types.is_time(kind):
            return _ticks(kind.unit, unit)
        return _numbers("integers", INT64, "long")(schema, kind, narrow)

    return rule


def _ticks(unit: str, wanted: str) -> Leaf:
    """Converts times from one unit to another, rounding down."""

    def encode(column: Any, _mark: Mark) -> Cells:
        return Cells("integers", in_unit(column, unit, wanted))

    return encode


def _decimal(schema: Any, kind: Any, narrow: bool) -> Leaf | None:
    """Writes the unscaled integer in big-endian two's complement, as short as the type allows."""
    precision, scale = schema["precision"], schema.get("scale", 0)
    if not pa.types.is_decimal(kind) or kind.scale > scale:
        return None
    if not narrow and kind.precision + scale - kind.scale > precision:
        return None
    size, factor, limit = schema.get("size"), 10 ** (scale - kind.scale), 10**precision

    def encode(column: Any, mark: Mark) -> Cells:
        cells: list[bytes | None] = []
        bad = []
        for number in _unscaled(column):
            scaled = None if number is None else number * factor
            fits = scaled is None or _fits(scaled, limit, size)
            bad.append(not fits)
            cells.append(_complement(scaled, size) if fits and scaled is not None else None)
        why = f"a decimal that no decimal({precision},{scale}) has"
        array = pa.array(cells, pa.large_binary())
        layout = "texts" if size is None else "plain"
        return Cells(layout, array, _marked(pa.array(bad, pa.bool_()), why, mark))

    return encode


def _unscaled(column: Any) -> list[int | None]:
    width, data = column.type.bit_width // 8, memoryview(column.buffers()[1])
    return [
        int.from_bytes(data[at * width : (at + 1) * width], "little", signed=True)
        if valid
        else None
        for at, valid in enumerate(column.is_valid().to_pylist(), column.offset)
    ]


def _fits(number: int, limit: int, size: int | None) -> bool:
    return abs(number) < limit and (size is None or _least_bytes(number) <= size)


def _least_bytes(number: int) -> int:
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _complement(number: int, size: int | None) -> bytes:
    return number.to_bytes(_least_bytes(number) if size is None else size, "big", signed=True)


_RULES: dict[str, Rule] = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _floats("floats", 32, _numbers("floats", FLOAT_INTEGERS, "float")),
    "double": _floats("doubles", 64, _numbers("doubles", DOUBLE_INTEGERS, "double")),
    "string": _text,
    "bytes": _bytes,
    "fixed": _fixed,
    "enum": _enum,
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
    "long-timestamp-millis": _moments("ms", zoned=True),
    "long-timestamp-micros": _moments("us", zoned=True),
    "long-local-timestamp-millis": _moments("ms", zoned=False),
    "long-local-timestamp-micros": _moments("us", zoned=False),
    "long-time-micros": _time("us"),
}
"""Rules by the name of the Avro type, with the logical type appended if it matters."""


class Part(NamedTuple):
    """Cells, and the union's branch numbers for nulls and for values. -1 means no branch."""

    null_branch: int
    value_branch: int
    cells: Cells


Encode: TypeAlias = Callable[[Any], Cells]
ToPart: TypeAlias = Callable[[Any], Part]
Rows: TypeAlias = tuple[Any, Any]
"""The encoded rows as ``large_binary``, and which of them are bad (None: none)."""


def avro_encoder(encoding: AvroEncoding, kind: Any) -> AvroEncoder:
    """The encoder for columns of an Arrow type. Raises RecordTypeError if they do not fit."""
    names: dict[str, Any] = {}
    schema = encoding.parsed(names)
    return AvroEncoder(schema, names, kind, bare_bytes=encoding.bare_bytes)


class AvroEncoder:
    """Encodes columns of one Arrow type with one schema. For one thread only."""

    def __init__(
        self, schema: Any, names: Mapping[str, Any], kind: Any, *, bare_bytes: bool = False
    ) -> None:
        self._names = names
        self._reasons: list[str] = []  # why cells of the last column were bad
        kind = plain_kind(kind)
        schema = self._named(schema)
        if _type(schema) in ("record", "error"):
            self._rows = self._record_rows(schema, kind, "")
        else:
            part = self._part(schema, kind, "")
            if bare_bytes and _type(schema) == "bytes":
                part = _without_length(part)
            self._rows = lambda column, prefix: _written([part(column)], len(column), prefix)

    def encode(self, column: Any, prefix: bytes) -> tuple[Any, dict[int, SerializationError]]:
        """The encoded cells, each after ``prefix``, and the errors by row. Nulls stay null."""
        column = plain_values(column)
        if column.null_count:
            records, faults = self.encode(column.drop_null(), prefix)
            kept = compute.indices_nonzero(column.is_valid()).to_pylist() if faults else []
            return records.take(_places(column)), {kept[row]: why for row, why in faults.items()}
        self._reasons.clear()
        records, bad = self._rows(column, prefix)
        if bad is None:
            return records, {}
        rows, reasons = compute.indices_nonzero(bad).to_pylist(), set(self._reasons)
        faults = {row: SerializationError(self._reason(column, row, reasons)) for row in rows}
        return compute.if_else(bad, pa.scalar(None, pa.large_binary()), records), faults

    def _reason(self, column: Any, row: int, reasons: set[str]) -> str:
        if len(reasons) > 1:  # the row alone has its own
            self._reasons.clear()
            self._rows(column.take(pa.array([row])), b"")
        return f"the value does not fit the schema: {self._reasons[0]}"

    def _named(self, schema: Any) -> Any:
        return self._names.get(schema, schema) if isinstance(schema, str) else schema

    def _part(self, schema: Any, kind: Any, path: str) -> ToPart:
        """The encoder of cells that may be null. The Arrow type decides the branch of a union."""
        is_union = isinstance(schema, list)
        branches = schema if is_union else [schema]
        null_branch = branches.index("null") if "null" in branches else -1
        if pa.types.is_null(kind) and null_branch >= 0:
            branch = null_branch if is_union else -1
            return lambda column: Part(branch, -1, Cells("integers", column.cast(pa.int64())))
        number, encode = self._branch(branches, plain_kind(kind), path)
        value_branch = number if is_union else -1
        reason = _at(path, "null, which the schema does not allow")

        def part(column: Any) -> Part:
            column = plain_values(column)
            cells = encode(column)
            if null_branch < 0 and column.null_count:
                self._reasons.append(reason)
                cells = cells._replace(bad=either(cells.bad, column.is_null()))
            return Part(null_branch, value_branch, cells)

        return part

    def _branch(self, branches: list[Any], kind: Any, path: str) -> tuple[int, Encode]:
        """The first branch that suits all values, or else the first branch that suits some."""
        refusals: list[RecordTypeError] = []
        for narrow in (False, True):
            for number, branch in enumerate(branches):
                if branch != "null":
                    try:
                        return number, self._value(self._named(branch), kind, path, narrow)
                    except RecordTypeError as error:
                        refusals.append(error)
        if len(branches) - branches.count("null") == 1:
            raise refusals[-1]
        raise _unfit(path, kind, "any branch of the union")

    def _value(self, schema: Any, kind: Any, path: str, narrow: bool) -> Encode:
        name = _type(schema)
        if is_variant(kind) or is_spatial(kind):
            raise _unfit(path, "a VARIANT, GEOMETRY or GEOGRAPHY", name, "convert it in a query")
        if name in ("record", "error"):
            return self._record(schema, kind, path)
        if name == "array" and is_list(kind):
            return self._array(self._part(schema["items"], kind.value_type, f"{path}[]"))
        if name == "map" and pa.types.is_map(kind):
            return self._map(schema, kind, path)
        encode = leaf(schema, kind, narrow)
        if encode is None or isinstance(encode, str):
            raise _unfit(path, kind, name, encode)
        write = encode
        return lambda column: write(column, lambda why: self._reasons.append(_at(path, why)))

    def _record(self, schema: Any, kind: Any, path: str) -> Encode:
        rows = self._record_rows(schema, kind, path)

        def encode(column: Any) -> Cells:
            if not column.null_count:
                return Cells("plain", *rows(column, b""))
            records, bad = rows(column.drop_null(), b"")
            places = _places(column)
            bad = None if bad is None else compute.fill_null(bad.take(places), False)
            return Cells("plain", records.take(places), bad)

        return encode

    def _record_rows(self, schema: Any, kind: Any, path: str) -> Callable[[Any, bytes], Rows]:
        if not pa.types.is_struct(kind) or is_variant(kind) or is_spatial(kind):
            raise _unfit(path, kind, "record")
        places = _matched([field["name"] for field in schema["fields"]], kind, path)
        parts: list[tuple[int | None, ToPart]] = []
        for field, place in zip(schema["fields"], places, strict=True):
            child = pa.null() if place is None else kind.field(place).type
            parts.append((place, self._part(field["type"], child, _inside(path, field["name"]))))

        def write(column: Any, prefix: bytes) -> Rows:
            children, rows = column.flatten(), len(column)
            nulls = pa.nulls(rows)
            cells = [part(nulls if at is None else children[at]) for at, part in parts]
            return _written(cells, rows, prefix)

        return write

    def _array(self, item: ToPart) -> Encode:
        return lambda column: _blocks(column, [item(column.values)])

    def _map(self, schema: Any, kind: Any, path: str) -> Encode:
        if not is_text(plain_kind(kind.key_type)):
            raise _unfit(path, kind, "map", "its keys are texts")
        key = self._part("string", kind.key_type, f"{path}[key]")
        value = self._part(schema["values"], kind.item_type, f"{path}[]")
        return lambda column: _blocks(column, [key(column.keys), value(column.items)])


def _without_length(part: ToPart) -> ToPart:
    def bare(column: Any) -> Part:
        made = part(column)
        return made._replace(cells=made.cells._replace(layout="plain"))

    return bare


def _written(parts: list[Part], rows: int, prefix: bytes) -> Rows:
    """The cells of each row, one after the other."""
    bad = None
    for part in parts:
        bad = either(bad, part.cells.bad)
    described = [
        (cells.layout, null_branch, value_branch, cells.array.offset, *_addresses(cells.array))
        for null_branch, value_branch, cells in parts
    ]
    buffers = [None, *map(pa.py_buffer, encode_columns(described, rows, prefix))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows, buffers), bad


def _addresses(array: Any) -> tuple[int, int, int]:
    buffers = [0 if each is None else each.address for each in array.buffers()]
    return buffers[0], buffers[1], buffers[2] if len(buffers) > 2 else 0


def _blocks(column: Any, parts: list[Part]) -> Cells:
    """Each list of ``column`` as one Avro block: the number of items, the items, and the end."""
    rows = len(parts[0].cells.array)
    items, bad = _written(parts, rows, b"")
    if bad is not None:
        items = compute.if_else(bad, pa.scalar(None, pa.large_binary()), items)
    lists = pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), items)
    nothing = pa.scalar(b"", pa.large_binary())
    joined = compute.binary_join(lists, nothing)  # null where an item is
    lengths = compute.list_value_length(lists)
    counts, _ = _written(
        [Part(-1, -1, Cells("integers", lengths.cast(pa.int64())))], len(column), b""
    )
    end = pa.scalar(b"\0", pa.large_binary())
    blocks = compute.binary_join_element_wise(counts, joined, end, nothing)
    blocks = compute.if_else(compute.equal(lengths, 0), end, blocks)
    broken = None if bad is None else compute.and_(joined.is_null(), column.is_valid())
    if column.null_count:
        blocks = compute.if_else(column.is_valid(), blocks, pa.scalar(None, pa.large_binary()))
    return Cells("plain", blocks, broken)


def _places(column: Any) -> Any:
    """The position that each cell has after nulls are dropped; null for a null."""
    before = compute.cumulative_sum(column.is_valid().cast(pa.int64()))
    return compute.if_else(column.is_valid(), compute.subtract(before, 1), None)


def _matched(fields: list[str], kind: Any, path: str) -> list[int | None]:
    """The position of each field's column, or None. Names may differ in upper and lower case.

    A column with exactly the name comes first. Raises RecordTypeError for a column without a field,
    so that no data is lost.
    """
    names = [field.name for field in kind]
    exact = {name: place for place, name in enumerate(names)}
    folded = {name.lower(): place for place, name in enumerate(names)}
    places = [exact.get(name, folded.get(name.lower())) for name in fields]
    left = [name for place, name in enumerate(names) if place not in places]
    if left:
        raise RecordTypeError(_at(path, f"no field of {fields} has the name of the columns {left}"))
    taken = [place for place in places if place is not None]
    if len(set(taken)) < len(taken):
        raise RecordTypeError(
            _at(path, f"{fields} differ in case alone, unlike the columns {names}")
        )
    return places


def _type(schema: Any) -> str:
    """The name of a type without its logical type. The name of a union is "union"."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(path: str, why: str) -> str:
    return f"{path}: {why}" if path else why


def _unfit(path: str, kind: Any, wanted: str, hint: str | None = None) -> RecordTypeError:
    return RecordTypeError(
        _at(path, f"{kind} does not fit the Avro type {wanted}{f' ({hint})' if hint else ''}")
    )
