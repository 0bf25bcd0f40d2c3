"""Compiled code encodes records and columns as fastavro does."""

from __future__ import annotations

import json
import struct
from datetime import UTC, timedelta, timezone
from decimal import Decimal
from io import BytesIO
from math import isfinite
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kprod.errors import RecordTypeError
from kprod.schema.columns.avro_columns import avro_encoder
from kprod.schema.encoding import AvroEncoding
from kprod.schema.flat_avro import flat_fields
from tests.support.steady_names import steady_repr
from tests.support.tier import examples

PREFIX = b"\0\0\0\0\7"
SYMBOLS = ["NEW", "PAID", "SENT"]
ENUM = {"type": "enum", "name": "State", "symbols": SYMBOLS}
FIXED = {"type": "fixed", "name": "Digest", "size": 4}
DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NAMED = {"type": "string", "avro.java.string": "String"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
LIST = {"type": "array", "items": "long"}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
SIMPLE = ["boolean", "int", "long", "float", "double", "string", "bytes", NAMED]
KINDS: list[Any] = [*SIMPLE, ENUM, FIXED, DATE, MILLIS, MICROS, DECIMAL, LIST, POINT]
moments = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))]))
fitting = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32) | st.integers(-9, 9),
    "double": st.floats() | st.integers(-9, 9),
    "string": st.text(),
    "bytes": st.binary(),
}
anything = st.one_of(
    st.none(),
    *fitting.values(),
    st.integers(),
    moments,
    st.dates(),
    st.sampled_from(SYMBOLS),
    st.binary(min_size=4, max_size=4),
    st.decimals(-999, 999, places=2),
    st.lists(st.integers(0, 9)),
    st.sampled_from(["\ud800", "NaN", ("int", 1), {"x": 1}, bytearray(b"1234"), 1.5e300]),
)


def fitting_values(kind: Any) -> st.SearchStrategy[Any]:
    """Mostly values that fit the type."""
    if isinstance(kind, list):
        return st.none() | fitting_values(next(one for one in kind if one != "null"))
    if isinstance(kind, str):
        return fitting[kind]
    special = {
        "enum": st.sampled_from(SYMBOLS),
        "fixed": st.binary(min_size=4, max_size=4),
        "date": st.dates() | moments,
        "timestamp-millis": moments,
        "timestamp-micros": moments,
        "decimal": st.decimals(-999, 999, places=2),
        "array": st.lists(st.integers(0, 9)),
        "record": st.just({"x": 1}),
    }
    name = kind.get("logicalType", kind["type"])
    return special[name] if name in special else fitting[kind["type"]]


@st.composite
def records(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """A schema with a few fields, and a record that fits it or nearly does."""
    fields, record = [], {}
    chosen = draw(st.lists(st.integers(0, len(KINDS) - 1), max_size=6, unique=True))
    for number in chosen:
        kind, name = KINDS[number], f"f{number}"
        union = draw(st.sampled_from([None, ["null", kind], [kind, "null"], [kind, "null", LIST]]))
        field = {"name": name, "type": kind if union is None or kind is LIST else union}
        if isinstance(field["type"], list) and draw(st.booleans()):
            field["default"] = None
        fields.append(field)
        if draw(st.integers(0, 9)):
            record[name] = draw(
                fitting_values(field["type"]) if draw(st.integers(0, 9)) else anything
            )
    if draw(st.booleans()):
        record["extra"] = 1
    return {"type": "record", "name": "R", "fields": fields}, record


def outcome(encode: Any, data: Any) -> Any:
    try:
        return encode(data)
    except Exception as error:
        return type(error), str(error)


def by_fastavro(schema: Any, data: Any) -> Any:
    buffer = BytesIO()
    buffer.write(PREFIX)
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), data)
    return buffer.getvalue()


@example(
    (
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "f2", "type": "long"}, {"name": "f1", "type": "int"}],
        },
        {"f1": 2.0**31},
    )
)
@settings(max_examples=examples(150))
@given(records())
def test_a_record_is_encoded_as_by_fastavro(drawn: tuple[dict[str, Any], Any]) -> None:
    schema, data = drawn
    encode = AvroEncoding(json.dumps(schema)).encoder(PREFIX)
    assert flat_fields(fastavro.parse_schema(schema)) is not None
    ours = outcome(encode, data)
    if is_out_of_range(schema, data):  # fastavro encodes an out-of-range number
        assert ours[0] in (ValueError, TypeError)
    else:
        assert ours == outcome(lambda one: by_fastavro(schema, one), data)


LARGEST_FLOAT = (2 - 2**-23) * 2.0**127


def is_out_of_range(schema: dict[str, Any], data: Any) -> bool:
    """Whether a number is outside the range of its ``int`` or ``float`` field."""
    for field in schema["fields"] if isinstance(data, dict) else ():
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kinds = [kind["type"] if isinstance(kind, dict) else kind for kind in kinds]
        value = data.get(field["name"])
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            continue
        if "int" in kinds and not -(2**31) <= value < 2**31:
            return True
        if "float" in kinds and abs(value) > LARGEST_FLOAT:
            return True
    return False


@pytest.mark.parametrize("size", [0, 1000, 1024, 100_000])
def test_long_fields_are_encoded(size: int) -> None:
    fields = [{"name": "a", "type": "string"}, {"name": "b", "type": "bytes"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    data = {"a": "x" * size, "b": bytes(size)}
    assert AvroEncoding(json.dumps(schema)).encoder(PREFIX)(data) == by_fastavro(schema, data)


def test_defaults_are_encoded() -> None:
    defaults = {"int": 7, "string": "seven", "double": "NaN", "boolean": True}
    fields = [{"name": kind, "type": kind, "default": one} for kind, one in defaults.items()]
    schema = {"type": "record", "name": "R", "fields": fields}
    encode = AvroEncoding(json.dumps(schema)).encoder(PREFIX)
    for data in ({}, {"double": 1}, {"double": 1, "int": 8}):
        assert encode(data) == by_fastavro(schema, data)
    with pytest.raises(TypeError):
        encode({"double": 1, "int": None})


def test_nested_records_are_left_to_fastavro() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "t", "type": ["null", "Tree"]}]}
    for other in ("string", tree, {"type": "array", "items": "long"}):
        assert flat_fields(fastavro.parse_schema(other)) is None
    fields = [{"name": "a", "type": ENUM}, {"name": "b", "type": "State"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    data = {"a": "NEW", "b": "SENT"}
    assert AvroEncoding(json.dumps(schema)).encoder(PREFIX)(data) == by_fastavro(schema, data)


LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "x", "type": ["null", "int"]}]}
moments_of_utc = st.datetimes(timezones=st.just(UTC))
longs = st.integers(-(2**63), 2**63 - 1)
pairs = st.fixed_dictionaries({"x": st.none() | st.integers(-(2**31), 2**31 - 1)})
NESTED = pa.array([[None, {"x": 1}], [{"x": 1}, {"x": 2**40}]])
TEXT_MAP = pa.map_(pa.string(), pa.string())


def array_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


COLUMNS: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", pa.bool_(), st.booleans()),
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "short": ("int", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "long": ("long", pa.int64(), longs),
    "float": ("float", pa.float32(), st.floats(width=32)),
    "double": ("double", pa.float64(), st.floats()),
    "whole": ("double", pa.int64(), st.integers(-(2**53), 2**53)),
    "string": ("string", pa.string(), st.text()),
    "bytes": ("bytes", pa.binary(), st.binary()),
    "enum": (ENUM, pa.string(), st.sampled_from(SYMBOLS)),
    "fixed": (FIXED, pa.binary(), st.binary(min_size=4, max_size=4)),
    "date": (DATE, pa.date32(), st.dates()),
    "millis": (MILLIS, pa.timestamp("us", "UTC"), moments_of_utc),
    "micros": (MICROS, pa.timestamp("us", "Europe/Rome"), moments_of_utc),
    "local": (LOCAL, pa.timestamp("us"), st.datetimes()),
    "list": (array_of(["long", "null"]), pa.list_(pa.int64()), st.lists(st.none() | longs)),
    "map": (
        map_of(PAIR),
        pa.map_(pa.string(), pa.struct([("x", pa.int32())])),
        st.dictionaries(st.text(max_size=3), pairs, max_size=3),
    ),
    "union": (["string", "null", "long"], pa.int64(), longs),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True))
    fields, rows = [], draw(st.integers(0, 12))
    cells: dict[str, Any] = {}
    for name in names:
        kind, arrow, values = COLUMNS[name]
        nullable = None
        if not isinstance(kind, list):
            nullable = draw(st.sampled_from([None, ["null", kind], [kind, "null"]]))
        values = values if nullable is None else st.none() | values
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        cells[name] = pa.array(drawn, arrow)
        fields.append({"name": name, "type": nullable or kind})
    mask = None
    if draw(st.booleans()):
        mask = pa.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), pa.bool_())
    struct_column = pa.StructArray.from_arrays(list(cells.values()), list(cells), mask=mask)
    start = draw(st.integers(0, rows))
    return json.dumps({"type": "record", "name": "R", "fields": fields}), struct_column[start:]


@settings(max_examples=examples(50))
@given(columns())
def test_columns_are_encoded_as_their_rows(drawn: tuple[str, Any]) -> None:
    schema, column = drawn
    encoding = AvroEncoding(schema)
    encode = encoding.encoder(PREFIX)
    records, errors = avro_encoder(encoding, column.type).encode(column, PREFIX)
    rows = column.to_pylist(maps_as_pydicts="strict")
    assert errors == {}
    assert records.to_pylist() == [None if row is None else encode(row) for row in rows]


def encoded(kind: Any, column: Any, name: str = "f") -> tuple[list[Any], dict[int, str]]:
    """The records of a struct with this single column, and the errors by row."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    rows = pa.StructArray.from_arrays([column], [name])
    records, errors = avro_encoder(AvroEncoding(json.dumps(schema)), rows.type).encode(rows, b"")
    return records.to_pylist(), {row: str(error) for row, error in errors.items()}


@pytest.mark.parametrize(
    ("kind", "column", "why"),
    [
        ("long", pa.array([1, None]), "f: null, which the schema does not allow"),
        ("long", pa.array([1, 2**63], pa.uint64()), "f: an integer that no long has"),
        ("int", pa.array([-(2**31), 2**31]), "f: an integer that no int has"),
        (["null", "int"], pa.array([None, 2**31]), "f: an integer that no int has"),
        ("double", pa.array([2**53, 2**53 + 1]), "f: an integer that no double has"),
        ("string", pa.array([b"a", b"\xff"]).view(pa.string()), "f: a text that is no UTF-8"),
        (ENUM, pa.array(["NEW", "OLD"]), "f: none of the symbols NEW, PAID, SENT"),
        (FIXED, pa.array([b"1234", b"12345"]), "f: not of 4 bytes"),
        (DECIMAL, pa.array([Decimal("1.5"), Decimal(10_000)], pa.decimal128(9, 1)), "f: a decimal"),
        (array_of("int"), pa.array([[1], [1, None]]), "f[]: null, which the schema does not allow"),
        (array_of(["null", PAIR]), NESTED, "f[].x: an integer that no int has"),
        (map_of(ENUM), pa.array([[], [("k", "OLD")]], TEXT_MAP), "f[]: none of the symbols"),
    ],
    ids=steady_repr,
)
def test_a_cell_that_does_not_fit_is_an_error_of_its_row(kind: Any, column: Any, why: str) -> None:
    records, errors = encoded(kind, column)
    assert [record is None for record in records] == [False, True]
    assert list(errors) == [1]
    assert errors[1].startswith(f"the value does not fit the schema: {why}")


@pytest.mark.parametrize(
    ("kind", "column", "why"),
    [
        ("long", pa.array(["text"]), "f: string does not fit the Avro type long"),
        ("string", pa.array([b"bytes"]), "f: binary does not fit"),
        ("bytes", pa.array(["text"]), "f: string does not fit"),
        ("boolean", pa.array([1]), "f: int64 does not fit"),
        ("float", pa.array([0.1]), "f: double does not fit .*digits would be lost"),
        ("float", pa.array([1], pa.decimal128(2, 1)), "f: decimal128"),
        (DECIMAL, pa.array([1], pa.decimal128(6, 3)), "f: decimal128"),
        (MICROS, pa.array([1], pa.timestamp("us")), r"depends on a zone: cast it to TIMESTAMP"),
        (LOCAL, pa.array([1], pa.timestamp("us", "UTC")), "cast it to TIMESTAMP_NTZ"),
        (["null", "int", "string"], pa.array([1.5]), "any branch of the union"),
        (map_of("int"), pa.array([[(1, 1)]], pa.map_(pa.int8(), pa.int8())), "texts"),
        (PAIR, pa.array([{"x": 1, "y": 2}]), r"f: no field of \['x'\] .* columns \['y'\]"),
        (array_of(PAIR), pa.array([[{"z": 1}]]), r"f\[\]: no field .*'z'"),
    ],
    ids=steady_repr,
)
def test_a_column_type_that_does_not_fit_is_rejected(kind: Any, column: Any, why: str) -> None:
    with pytest.raises(RecordTypeError, match=why):
        encoded(kind, column)


def test_columns_match_fields_ignoring_case_and_each_must_match() -> None:
    assert encoded("long", pa.array([1]), name="F") == ([b"\x02"], {})
    with pytest.raises(RecordTypeError, match=r"no field of \['f'\] has the name of .*\['g'\]"):
        encoded("long", pa.array([1]), name="g")


def test_a_field_without_a_column_must_be_nullable() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "int"]}]
    rows = pa.array([{"a": 1}])
    schema = {"type": "record", "name": "R", "fields": fields}
    records, _ = avro_encoder(AvroEncoding(json.dumps(schema)), rows.type).encode(rows, b"")
    assert records.to_pylist() == [b"\x02\x00"]
    rows = pa.array([{"b": 1}])
    with pytest.raises(RecordTypeError, match=r"a: null does not fit the Avro type int"):
        avro_encoder(AvroEncoding(json.dumps(schema)), rows.type)


@pytest.mark.parametrize(
    ("kind", "column", "record"),
    [
        (DATE, pa.array([-(2**31)], pa.int32()).cast(pa.date32()), "ffffffff0f"),
        (MICROS, pa.array([-(2**63)]).cast(pa.timestamp("us", "UTC")), "ffffffffffffffffff01"),
        (MILLIS, pa.array([-100, None]).cast(pa.timestamp("us", "UTC"))[:1], "01"),
        ("long", pa.array([-100]).cast(pa.timestamp("us", "UTC")), "01"),
        (DECIMAL, pa.array([Decimal("-1.28")], pa.decimal128(6, 2)), "0280"),
        (DECIMAL, pa.array([Decimal("-1.3")], pa.decimal128(4, 1)), "04ff7e"),
        (
            {**DECIMAL, "type": "fixed", "name": "D", "size": 6},
            pa.array([Decimal("-1.28")]),
            "ffffffffff80",
        ),
        ({"type": "string", "logicalType": "uuid"}, pa.array(["a"]), "0261"),
        (array_of(["null", "int"]), pa.array([[1, None]], pa.list_(pa.int32())), "0402020000"),
        (map_of("int"), pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), "02026b0200"),
        (["string", "null"], pa.nulls(1), "02"),
    ],
    ids=steady_repr,
)
def test_extreme_values_are_encoded_as_by_spark(kind: Any, column: Any, record: str) -> None:
    """From ``to_avro`` of Spark 4.3, or from the specification."""
    records, errors = encoded(kind, column)
    assert errors == {}
    assert records[0].hex() == record


def test_bytes_behind_a_schema_id_have_no_length() -> None:
    column = pa.array([b"data", None])
    framed = AvroEncoding('"bytes"', bare_bytes=True)
    assert avro_encoder(framed, column.type).encode(column, PREFIX)[0].to_pylist() == [
        PREFIX + b"data",
        None,
    ]
    plain = avro_encoder(AvroEncoding('"bytes"'), column.type).encode(column, b"")[0]
    assert plain[0].as_py() == struct.pack("b4s", 8, b"data")


@pytest.mark.parametrize("schema", [["null", "bytes"], ["null", DECIMAL], DECIMAL], ids=steady_repr)
def test_bytes_behind_a_schema_id_are_encoded_as_by_avro_serializer(schema: Any) -> None:
    number = Decimal("1.23")
    cell, kind = (b"data", pa.binary()) if "bytes" in schema else (number, pa.decimal128(5, 2))
    encoding = AvroEncoding(json.dumps(schema), bare_bytes=True)
    records, errors = avro_encoder(encoding, kind).encode(pa.array([cell], kind), PREFIX)
    assert errors == {}
    assert records[0].as_py() == encoding.encoder(PREFIX)(cell)


def test_bytes_behind_a_schema_id_must_fit_the_schema() -> None:
    for schema in ("string", POINT):
        encoding = AvroEncoding(json.dumps(schema), bare_bytes=True)
        with pytest.raises(RecordTypeError, match="binary does not fit"):
            avro_encoder(encoding, pa.binary())
