"""Columns of JSON are the texts that ``json`` would write for the same values."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.errors import RecordTypeError
from kprod.spark.columns.json_values import json_texts
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


def without_nulls(value: Any) -> Any:
    """As Spark's to_json: objects have no fields that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return value


@given(rows=st.lists(st.none() | ROW, max_size=8), start=st.integers(0, 3))
def test_objects_say_what_the_rows_hold(rows: list[Any], start: int) -> None:
    texts = json_texts(pa.array(rows, KIND).slice(start)).to_pylist()
    read = [None if text is None else json.loads(text) for text in texts]
    assert read == [without_nulls(row) for row in rows[start:]]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([MOMENT], pa.timestamp("us", "Europe/Berlin")), '"2023-01-02T03:04:05.678Z"'),
        (pa.array([MOMENT], pa.timestamp("ns")), '"2023-01-02T03:04:05.678"'),
        (pa.array([MOMENT], pa.timestamp("s")), '"2023-01-02T03:04:05.000"'),
        (pa.array([BEFORE], pa.timestamp("us", "UTC")), '"1969-12-31T23:59:59.999Z"'),
        (pa.array([BEFORE], pa.timestamp("ns")), '"1969-12-31T23:59:59.999"'),
        (pa.array([MOMENT.date()]), '"2023-01-02"'),
        (pa.array([decimal.Decimal("1.50")]), "1.50"),
        (pa.array([b"\x00\x01"]), '"AAE="'),
        (pa.array([math.nan]), '"NaN"'),
        (pa.array([-math.inf]), '"-Infinity"'),
        (pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int8())), '{"a":1,"b":null}'),
        (pa.array([[(1, [])]], pa.map_(pa.int8(), pa.list_(pa.int8()))), '{"1":[]}'),
        (pa.array([{}], pa.struct([])), "{}"),
        (pa.array(["a", "a"]).dictionary_encode()[1:], '"a"'),
    ],
    ids=steady_repr,
)
def test_other_types(column: Any, text: str) -> None:
    assert json_texts(column).to_pylist() == [text]


def test_bytes_that_are_no_text_are_replaced() -> None:
    """Spark lets any bytes pass for text; its own to_json replaces them as well."""
    data = b'\xff"ok\xc3'
    buffers = [None, pa.py_buffer(struct.pack("<3i", 0, 2, len(data))), pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.string(), 2, buffers)
    texts = json_texts(pa.StructArray.from_arrays([column], ["text"])).to_pylist()
    assert [json.loads(text)["text"] for text in texts] == ['\ufffd"', "ok\ufffd"]


def test_control_characters_are_escaped() -> None:
    text = "".join(map(chr, range(40))) + '\\"\x7f\u2028é'
    assert json.loads(json_texts(pa.array([text]))[0].as_py()) == text


def test_what_json_has_no_form_for_is_refused() -> None:
    with pytest.raises(RecordTypeError, match=r"no JSON for duration"):
        json_texts(pa.array([1], pa.duration("s")))
