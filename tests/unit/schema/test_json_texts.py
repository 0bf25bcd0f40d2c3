"""Columns of JSON are the texts that Spark's ``to_json`` writes for the same values."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import struct
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.errors import RecordTypeError
from kprod.schema.columns.json_texts import json_writer
from tests.support.steady_names import steady_repr

MOMENT = datetime.datetime(2023, 1, 2, 3, 4, 5, 678_901)
BEFORE = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_900)
LEAF = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
ROW = st.fixed_dictionaries(
    {
        "number": LEAF,
        "text": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "half": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "list": st.none() | st.lists(LEAF, max_size=3),
        "inner": st.none() | st.fixed_dictionaries({"yes": st.none() | st.booleans()}),
    }
)
KIND = pa.struct(
    [
        ("number", pa.int64()),
        ("text", pa.string()),
        ("half", pa.float64()),
        ("list", pa.list_(pa.int64())),
        ("inner", pa.struct([("yes", pa.bool_())])),
    ]
)


def json_texts(column: Any) -> Any:
    return json_writer(column.type)(column)


def without_nulls(value: Any) -> Any:
    """As Spark's to_json: objects have no fields that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return value


@given(rows=st.lists(st.none() | ROW, max_size=8), start=st.integers(0, 3))
def test_json_objects_equal_their_rows_without_null_fields(rows: list[Any], start: int) -> None:
    texts = json_texts(pa.array(rows, KIND).slice(start)).to_pylist()
    read = [None if text is None else json.loads(text) for text in texts]
    assert read == [without_nulls(row) for row in rows[start:]]


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        (pa.list_(pa.int64()), [1, None]),
        (pa.map_(pa.string(), pa.int64()), [("k", 1), ("l", None)]),
        (pa.list_(KIND), [None, {"list": [1, 2]}]),
    ],
    ids=["list", "map", "nested"],
)
def test_a_slice_takes_time_in_proportion_to_its_rows(kind: Any, cell: list[Any]) -> None:
    """Rejecting rows one by one took quadratic time."""
    column = pa.array([cell * 50] * 1_000, kind)
    write, seconds = json_writer(kind), []
    for part in (column, *[column.slice(998, 1)] * 3):
        started = time.process_time()
        texts = write(part).to_pylist()
        seconds.append(time.process_time() - started)
    assert texts == write(column).to_pylist()[-1:]
    assert min(seconds[1:]) < seconds[0] / 5


@given(st.lists(st.none() | st.floats(width=32)))
def test_floats_survive_a_round_trip(numbers: list[float | None]) -> None:
    for kind in (pa.float32(), pa.float64()):
        column = pa.array(numbers, kind)
        texts = json_texts(column).to_pylist()
        read = [None if text is None else float(json.loads(text)) for text in texts]
        assert str(pa.array(read, kind).to_pylist()) == str(column.to_pylist())


def at(when: datetime.datetime, unit: str, zone: str | None = None) -> Any:
    return pa.array([when], pa.timestamp(unit, zone))


def moment(micros: int, zone: str | None) -> Any:
    return pa.array([micros]).cast(pa.timestamp("us", zone))


def day(number: int) -> Any:
    return pa.array([number], pa.int32()).cast(pa.date32())


def key(column: Any) -> Any:
    keys = pa.MapArray.from_arrays([0, 1], column, pa.array([1]))
    return pa.StructArray.from_arrays([keys], ["x"])


def variant(value: bytes, names: tuple[bytes, ...] = ()) -> Any:
    ends = [0]
    for name in names:
        ends.append(ends[-1] + len(name))
    metadata = bytes([1, len(names), *ends]) + b"".join(names)
    marked = pa.field("metadata", pa.binary(), metadata={"variant": "true"})
    arrays = [pa.array([value]), pa.array([metadata])]
    return pa.StructArray.from_arrays(arrays, fields=[pa.field("value", pa.binary()), marked])


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (at(MOMENT, "us", "UTC"), '"2023-01-02T03:04:05.678Z"'),
        (at(MOMENT, "us", "Europe/Berlin"), '"2023-01-02T04:04:05.678+01:00"'),
        (at(MOMENT, "us", "GMT-3:30"), '"2023-01-01T23:34:05.678-03:30"'),
        (at(MOMENT, "ns"), '"2023-01-02T03:04:05.678"'),
        (at(MOMENT, "s"), '"2023-01-02T03:04:05.000"'),
        (at(BEFORE, "us", "UTC"), '"1969-12-31T23:59:59.999Z"'),
        (at(BEFORE, "ns"), '"1969-12-31T23:59:59.999"'),
        (pa.array([MOMENT.date()]), '"2023-01-02"'),
        (pa.array([decimal.Decimal("1.50")]), "1.50"),
        (pa.array([b"\x00\x01"]), '"AAE="'),
        (pa.array([math.nan]), '"NaN"'),
        (pa.array([-math.inf]), '"-Infinity"'),
        (pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int8())), '{"a":1,"b":null}'),
        (pa.array([[(1, [])]], pa.map_(pa.int8(), pa.list_(pa.int8()))), '{"1":[]}'),
        (pa.array([{}], pa.struct([])), "{}"),
        (pa.array(["a", "a"]).dictionary_encode()[1:], '"a"'),
        (variant(b"\x00"), "null"),
        (variant(b"\x04"), "true"),
        (variant(b"\x0c\xff"), "-1"),
        (variant(b"\x18" + struct.pack("<q", -(2**63))), "-9223372036854775808"),
        (variant(b"\x1c" + struct.pack("<d", 1e10)), "1.0E10"),
        (variant(b"\x1c" + struct.pack("<d", math.nan)), '"NaN"'),
        (variant(b"\x38" + struct.pack("<f", 0.1)), "0.1"),
        (variant(b"\x20\x02" + struct.pack("<i", -110)), "-1.1"),
        (variant(b"\x28\x0b" + struct.pack("<q", 1)), "0.00000000001"),
        (variant(b"\x2c" + struct.pack("<i", 2932897)), '"+10000-01-01"'),
        (variant(b"\x34" + struct.pack("<q", 120_000)), '"1970-01-01 00:00:00.12"'),
        (variant(b"\x3c\x02\x00\x00\x00\x00\xff"), '"AP8="'),
        (variant(b"\x40\x01\x00\x00\x00\x1f"), '"\\u001F"'),
        (variant(b"\x02\x01\x00\x00\x03\x05x", (b"a",)), '{"a":"x"}'),
        (variant(b"\x03\x02\x00\x02\x05\x0c\x01\x09\xc3\xa9"), '[1,"é"]'),
        (pa.array([1e7]), "1.0E7"),
        (pa.array([123456789.0]), "1.23456789E8"),
        (pa.array([9999999.0]), "9999999.0"),
        (pa.array([0.0009999]), "9.999E-4"),
        (pa.array([-0.0]), "-0.0"),
        (pa.array([5e-324]), "4.9E-324"),
        (pa.array([2e-323]), "2.0E-323"),
        (pa.array([1.7976931348623157e308]), "1.7976931348623157E308"),
        (pa.array([0.1], pa.float32()), "0.1"),
        (pa.array([1.4e-45], pa.float32()), "1.4E-45"),
        (pa.array([3.4028235e38], pa.float32()), "3.4028235E38"),
        (pa.array([decimal.Decimal("0E-18")], pa.decimal128(38, 18)), "0E-18"),
        (pa.array([decimal.Decimal("-1E-18")], pa.decimal128(38, 18)), "-1E-18"),
        (day(2932897), '"+10000-01-01"'),
        (day(100_000_000), '"+275760-09-13"'),
        (day(-719163), '"0000-12-31"'),
        (day(-800_000), '"-0221-09-04"'),
        (moment(253402300800000000, "America/New_York"), '"9999-12-31T19:00:00.000-05:00"'),
        (moment(-62135596800000001, "America/New_York"), '"0000-12-31T19:03:57.999-04:56:02"'),
        (moment(-100000000000000000, "America/New_York"), '"-1199-02-15T09:17:18.000-04:56:02"'),
        (moment(1793511000000000, "America/New_York"), '"2026-11-01T01:30:00.000-04:00"'),
        (moment(1793514600000000, "America/New_York"), '"2026-11-01T01:30:00.000-05:00"'),
        (moment(253402300800000000, None), '"+10000-01-01T00:00:00.000"'),
        (
            pa.array(["\x00\x08\x0b\x1b\x1f\x7f\x80\u2028/"]),
            '"\\u0000\\b\\u000B\\u001B\\u001F\x7f\x80\u2028/"',
        ),
        (pa.StructArray.from_arrays([pa.array([1])], names=['é"']), '{"é\\"":1}'),
        (key(pa.array([math.nan])), '{"x":{"NaN":1}}'),
        (key(pa.array([1e7])), '{"x":{"1.0E7":1}}'),
        (key(day(19782)), '{"x":{"19782":1}}'),
        (key(moment(-100, "America/New_York")), '{"x":{"-100":1}}'),
        (key(pa.array([decimal.Decimal("1E-10")], pa.decimal128(10, 10))), '{"x":{"1E-10":1}}'),
        (key(pa.array([True])), '{"x":{"true":1}}'),
    ],
    ids=steady_repr,
)
def test_other_types_and_extremes_equal_the_output_of_spark(column: Any, text: str) -> None:
    """Recorded from ``to_json`` of Spark 4.3 on Java 17."""
    assert json_texts(column).to_pylist() == [text]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'\xff"\xe2\x82', '\ufffd"\ufffd'),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xc0\xafa", "\ufffd\ufffda"),
        (b"\xe2\x82\xc3\xf0\xf5", "\ufffd" * 4),
    ],
)
def test_invalid_utf_8_is_replaced(data: bytes, text: str) -> None:
    """Spark's strings may have any bytes; its to_json replaces them too."""
    column = pa.array([data, b"ok"]).view(pa.string())
    assert [json.loads(one) for one in json_texts(column).to_pylist()] == [text, "ok"]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([1], pa.duration("s")), "no JSON for duration"),
        (pa.array([1], pa.time64("ns")), "no JSON for time64"),
        (key(pa.array([b"k"])), "no name in JSON for keys of binary"),
        (key(pa.array([[1]])), "no name in JSON for keys of list"),
        (moment(0, "Mars/Base"), "time zone 'Mars/Base' is not known"),
        (variant(b"\x30" + bytes(8)), "TIMESTAMP.*session's zone"),
        (variant(b""), "cannot be read"),
        (variant(b"\x7c"), "kind 31"),
    ],
    ids=steady_repr,
)
def test_types_that_json_cannot_represent_are_refused(column: Any, why: str) -> None:
    with pytest.raises(RecordTypeError, match=why):
        json_texts(column)
