"""The compiled encoder of Avro records writes what fastavro writes, and fails as fastavro fails."""

from __future__ import annotations

import json
from datetime import UTC, timedelta, timezone
from io import BytesIO
from math import isfinite
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kprod.schema.encoding import AvroEncoding
from kprod.schema.flat_avro import flat_fields
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
    """Objects that belong to a type, most of the time."""
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
    """A schema of a few fields, and a record that fits it, or nearly."""
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
    """The bytes, or the error."""
    try:
        return encode(data)
    except Exception as error:
        return type(error), str(error)


def by_fastavro(schema: Any, data: Any) -> Any:
    buffer = BytesIO()
    buffer.write(PREFIX)
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), data)
    return buffer.getvalue()


@settings(max_examples=examples(150))
@given(records())
def test_a_record_is_written_as_by_fastavro(made: tuple[dict[str, Any], Any]) -> None:
    schema, data = made
    encode = AvroEncoding(json.dumps(schema)).encoder(PREFIX)
    assert flat_fields(fastavro.parse_schema(schema)) is not None
    ours = outcome(encode, data)
    if has_no_room(schema, data):  # fastavro writes a number of another type, or infinity
        assert ours[0] in (ValueError, TypeError)
    else:
        assert ours == outcome(lambda one: by_fastavro(schema, one), data)


LARGEST_FLOAT = (2 - 2**-23) * 2.0**127


def has_no_room(schema: dict[str, Any], data: Any) -> bool:
    """Whether a number is outside of the range of an ``int`` or ``float`` field."""
    for field in schema["fields"] if isinstance(data, dict) else ():
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kinds = [kind["type"] if isinstance(kind, dict) else kind for kind in kinds]
        value = data.get(field["name"])
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if "int" in kinds and isinstance(value, int) and not -(2**31) <= value < 2**31:
            return True
        if "float" in kinds and isfinite(value) and abs(value) > LARGEST_FLOAT:
            return True
    return False


@pytest.mark.parametrize("size", [0, 1000, 1024, 100_000])
def test_long_fields_find_room(size: int) -> None:
    fields = [{"name": "a", "type": "string"}, {"name": "b", "type": "bytes"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    data = {"a": "x" * size, "b": bytes(size)}
    assert AvroEncoding(json.dumps(schema)).encoder(PREFIX)(data) == by_fastavro(schema, data)


def test_defaults_are_written() -> None:
    defaults = {"int": 7, "string": "seven", "double": "NaN", "boolean": True}
    fields = [{"name": kind, "type": kind, "default": one} for kind, one in defaults.items()]
    schema = {"type": "record", "name": "R", "fields": fields}
    encode = AvroEncoding(json.dumps(schema)).encoder(PREFIX)
    for data in ({}, {"double": 1}, {"double": 1, "int": 8}):
        assert encode(data) == by_fastavro(schema, data)
    with pytest.raises(TypeError):
        encode({"double": 1, "int": None})


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        {"type": "record", "name": "Tree", "fields": [{"name": "t", "type": ["null", "Tree"]}]},
        {"type": "array", "items": "long"},
    ],
)
def test_fastavro_writes_what_is_no_flat_record(schema: Any) -> None:
    assert flat_fields(fastavro.parse_schema(schema)) is None


def test_a_type_that_is_named_again_is_left_to_fastavro() -> None:
    fields = [{"name": "a", "type": ENUM}, {"name": "b", "type": "State"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    data = {"a": "NEW", "b": "SENT"}
    assert AvroEncoding(json.dumps(schema)).encoder(PREFIX)(data) == by_fastavro(schema, data)
