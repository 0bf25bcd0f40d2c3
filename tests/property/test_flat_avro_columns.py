"""Arrow columns become the Avro records that their rows become one by one."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kprod.schema.encoding import AvroEncoding
from kprod.spark.columns.avro_columns import avro_records

PREFIX = b"\0\0\0\0\7"
ENUM = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
FIXED = {"type": "fixed", "name": "Digest", "size": 4}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
moments = st.datetimes(timezones=st.just(UTC))
KINDS: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", pa.bool_(), st.booleans()),
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "short": ("int", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "long": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", pa.float32(), st.floats(width=32)),
    "double": ("double", pa.float64(), st.floats()),
    "whole": ("double", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "string": ("string", pa.string(), st.text()),
    "bytes": ("bytes", pa.binary(), st.binary()),
    "enum": (ENUM, pa.string(), st.sampled_from(["NEW", "PAID"])),
    "fixed": (FIXED, pa.binary(), st.binary(min_size=4, max_size=4)),
    "date": ({"type": "int", "logicalType": "date"}, pa.date32(), st.dates()),
    "millis": (MILLIS, pa.timestamp("us", "UTC"), moments),
    "micros": (MICROS, pa.timestamp("us", "Europe/Rome"), moments),
    "list": ({"type": "array", "items": "long"}, pa.list_(pa.int64()), st.just([1, 2])),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, Any]:
    """A schema and a struct column that fits it."""
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5, unique=True))
    fields, rows = [], draw(st.integers(0, 12))
    cells: dict[str, Any] = {}
    for name in names:
        kind, arrow, values = KINDS[name]
        nullable = draw(st.sampled_from([None, ["null", kind], [kind, "null"]]))
        values = values if nullable is None else st.none() | values
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        cells[name] = pa.array(drawn, arrow)
        fields.append({"name": name, "type": nullable or kind})
    mask = None
    if draw(st.booleans()):
        mask = pa.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), pa.bool_())
    struct = pa.StructArray.from_arrays(list(cells.values()), list(cells), mask=mask)
    start = draw(st.integers(0, rows))
    return json.dumps({"type": "record", "name": "R", "fields": fields}), struct[start:]


@settings(max_examples=600, deadline=None)
@given(columns())
def test_the_records_are_those_of_the_rows(made: tuple[str, Any]) -> None:
    schema, column = made
    encoding = AvroEncoding(schema)
    fields, encode = encoding.flat_fields(), encoding.encoder(PREFIX)
    assert fields is not None
    records = avro_records(fields, column, PREFIX)
    if records is None:  # integers that a double cannot hold
        assert any(field.name == "whole" for field in column.type)
        return
    expected = [None if row is None else encode(row) for row in column.to_pylist()]
    assert records.to_pylist() == expected


def record_of(kind: Any, column: Any, name: str = "f") -> Any:
    """What becomes of a column alone in its struct."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    fields = AvroEncoding(json.dumps(schema)).flat_fields()
    assert fields is not None
    return avro_records(fields, pa.StructArray.from_arrays([column], [name]), b"")


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("long", pa.array([1, None])),
        ("long", pa.array(["text"])),
        ("long", pa.array([2**63], pa.uint64())),
        ("int", pa.array([2**31])),
        ("string", pa.array([b"bytes"])),
        ("string", pa.array([b"\xff"]).view(pa.string())),
        ("bytes", pa.array(["text"])),
        ("boolean", pa.array([1])),
        (ENUM, pa.array(["OLD"])),
        (["null", ENUM], pa.array(["OLD", None])),
        (FIXED, pa.array([b"12345"])),
        (MICROS, pa.array([2**60], pa.timestamp("us", "UTC"))),
        (MICROS, pa.array([1], pa.timestamp("us"))),
        (MILLIS, pa.array([1], pa.timestamp("ns", "UTC"))),
        ({"type": "int", "logicalType": "date"}, pa.array([2**30], pa.int32()).view(pa.date32())),
    ],
)
def test_cells_that_do_not_fit_are_left_to_one_by_one(kind: Any, column: Any) -> None:
    assert record_of(kind, column) is None


def test_a_missing_column_is_left_to_one_by_one() -> None:
    assert record_of("long", pa.array([1]), name="other") is None
    assert record_of("long", pa.array([1])).to_pylist() == [b"\x02"]
