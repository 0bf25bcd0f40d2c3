"""Which Arrow columns become which arguments of ``send``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kprod.errors import RecordTypeError
from kprod.spark.record_shapes import RecordShapes, read_batch
from tests.support.steady_names import steady_repr

SHAPES = RecordShapes(topic="t")

TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.dictionary(pa.int32(), pa.string()),
]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_every_kind_of_text_becomes_bytes(kind: Any) -> None:
    column = pa.array(["a", None, "gr\u00fcn", ""]).cast(kind)
    batch = pa.RecordBatch.from_arrays([column], ["value"])
    assert [row[1] for row in read_batch(batch, SHAPES)] == [b"a", None, "gr\u00fcn".encode(), b""]


def test_a_slice_of_a_batch_is_only_that_slice() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b", "c", "d"]}).slice(1, 2)
    assert [row[1] for row in read_batch(batch, SHAPES)] == [b"b", b"c"]


def test_all_columns_have_their_place() -> None:
    moment = pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC"))
    headers = pa.array([[("h", b"x")], None], pa.map_(pa.string(), pa.binary()))
    batch = pa.RecordBatch.from_pydict(
        {
            "headers": headers,
            "key": pa.array(["k", None]),
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": moment,
            "value": pa.array([b"v", None]),
        }
    )
    assert list(read_batch(batch, SHAPES)) == [
        ("t", b"v", b"k", [("h", b"x")], 3, 1_700_000_000_123),
        ("t", None, None, None, None, None),
    ]


def test_headers_may_be_structs_and_timestamps_numbers() -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["v"]),
            "headers": pa.array([[{"key": "h", "value": None}]], header),
            "timestamp": pa.array([17], pa.int64()),
        }
    )
    assert list(read_batch(batch, SHAPES)) == [("t", b"v", None, [("h", None)], None, 17)]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"value": ["v"], "timestamp": ["yesterday"]}, "timestamp column"),
    ],
    ids=steady_repr,
)
def test_columns_that_fit_no_record_are_refused(columns: Any, complaint: str) -> None:
    with pytest.raises(RecordTypeError, match=complaint):
        list(read_batch(pa.RecordBatch.from_pydict(columns), SHAPES))


def test_times_before_1970_are_cut_downwards() -> None:
    for unit in ("us", "ns"):
        parts = {"us": 10**3, "ns": 10**6}[unit]
        told = [-parts - 1, -parts, -1, 0, 1, 2**63 - 1, -(2**63) + 1]
        times = pa.array([*told, None], pa.timestamp(unit, "UTC"))
        batch = pa.RecordBatch.from_pydict({"value": [b"v"] * 8, "timestamp": times})
        read = read_batch(batch, RecordShapes(topic="t"))
        assert [timestamp for *_, timestamp in read] == [*(each // parts for each in told), None]
