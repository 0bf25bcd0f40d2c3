"""Items and columns become arguments of ``send``."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from kprod.errors import RecordTypeError
from kprod.schema.columns.payload_format import PayloadFormat
from kprod.schema.columns.record_plan import RecordPlan, Rows, read_batch
from tests.support.steady_names import steady_repr

SHAPES = RecordPlan(topic="t")
NOON = datetime.datetime(2013, 1, 1, 12, tzinfo=datetime.UTC)
NOON_MS = 1_357_041_600_000
KEYED = Row("key", "value")


@pytest.mark.parametrize(
    ("item", "arguments"),
    [
        (b"v", ("t", b"v", None, None, None, None)),
        ("gr\u00fcn", ("t", "gr\u00fcn".encode(), None, None, None, None)),
        ((None, None), ("t", None, None, None, None, None)),
        (("k", b"v"), ("t", b"v", b"k", None, None, None)),
        (("k", "v", [("h", "x")]), ("t", b"v", b"k", [("h", b"x")], None, None)),
        (("k", "v", None, 17), ("t", b"v", b"k", None, None, 17)),
        (("k", "v", {}, NOON, 3), ("t", b"v", b"k", [], 3, NOON_MS)),
        ({"value": "v"}, ("t", b"v", None, None, None, None)),
        ({"value": None, "key": "k"}, ("t", None, b"k", None, None, None)),
        (Row(key="k", value=b"v"), ("t", b"v", b"k", None, None, None)),
        (Row(value="v", partition=2), ("t", b"v", None, None, 2, None)),
        (Row(value="v", timestamp=NOON), ("t", b"v", None, None, None, NOON_MS)),
        (Row(value="v", topic="other"), ("t", b"v", None, None, None, None)),
        (Row("k", "v"), ("t", b"v", b"k", None, None, None)),
        (
            Row(value="v", headers=[Row(key="h", value=b"x"), Row(key="h", value=None)]),
            ("t", b"v", None, [("h", b"x"), ("h", None)], None, None),
        ),
        (
            {"value": "", "timestamp": NOON.astimezone().replace(tzinfo=None)},  # local time
            ("t", b"", None, None, None, NOON_MS),
        ),
    ],
    ids=steady_repr,
)
def test_items_become_arguments_of_send(item: Any, arguments: tuple[Any, ...]) -> None:
    assert SHAPES.read(item) == arguments


def test_columns_may_have_other_names() -> None:
    shapes = RecordPlan(topic=None, columns={"key": "id", "value": "payload"})
    row = Row(id="1", payload="p", topic="from-the-row")
    assert shapes.read(row)[:3] == ("from-the-row", b"p", b"1")


def test_text_stays_text_for_a_serializer() -> None:
    shapes = RecordPlan(topic="t", encode_key=False, encode_value=False)
    assert shapes.read(("k", "v"))[1:3] == ("v", "k")


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        (17, "got int"),
        (("only one",), "got a tuple of 1"),
        (("k", "v", None, 1, 2, 3), "got a tuple of 6"),
        ({"key": "k"}, "no column 'value'"),
        (Row(value="v", carrier="UA"), "columns .'carrier'. are not part"),
        (("k", "v", None, "yesterday"), "timestamp must be"),
        (("k", "v", None, datetime.datetime(1, 1, 1)), "its timestamp 0001-01-01 00:00:00"),
        (("k", "\ud800"), "its value is not Unicode text"),
        (KEYED("\ud800", "v"), "its key is not Unicode text"),
        (KEYED("k"), "got a tuple of 1"),
        (("k", "v", 17), "headers must be"),
        (("k", "v", ["name"]), "headers must be"),
    ],
    ids=steady_repr,
)
def test_invalid_items_are_refused(item: Any, complaint: str) -> None:
    with pytest.raises(RecordTypeError, match=complaint):
        SHAPES.read(item)


def test_a_record_needs_a_topic() -> None:
    with pytest.raises(RecordTypeError, match="has no topic"):
        RecordPlan(topic=None).read(b"v")


def test_missing_and_duplicate_columns_are_refused() -> None:
    """A joined frame may have two columns of one name."""
    plan = RecordPlan(topic=None, columns={"value": "payload"})
    with pytest.raises(RecordTypeError, match="no column 'payload'"):
        plan.find(["key"])
    packing = RecordPlan(topic="t", value=PayloadFormat("json"))
    for of, columns in ((plan, ["payload", "payload"]), (packing, ["id", "name", "id"])):
        with pytest.raises(RecordTypeError, match=f"more than one column '{columns[0]}'"):
            of.find(columns)


TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_every_text_type_becomes_bytes_and_is_measured(kind: Any) -> None:
    column = pa.array(["a", None, "gr\u00fcn", ""]).cast(kind)
    batch = pa.RecordBatch.from_arrays([column, column], ["value", "key"])
    expected = [b"a", None, "gr\u00fcn".encode(), b""]
    assert [row[1:3] for row in read_batch(batch, SHAPES)] == [(one, one) for one in expected]
    assert Rows("t", batch).slice(1).nbytes == 2 * len("gr\u00fcn".encode())


def test_slices_of_rows_have_their_sizes_and_arguments() -> None:
    payloads = {"value": [b"a", None, b"ccc"], "key": [None, b"k", b"kk"]}
    rows = Rows("t", pa.RecordBatch.from_pydict(payloads))
    assert (rows.num_rows, rows.nbytes) == (3, 7)
    assert (rows.slice(1, 1).num_rows, rows.slice(1, 1).nbytes) == (1, 1)
    assert rows.slice(1).arguments(1) == ("t", b"ccc", b"kk", None, None, None)
    unkeyed = Rows("t", pa.RecordBatch.from_pydict({"value": [b"a"]}))
    assert unkeyed.slice(0).arguments(0)[2] is None
    nothing = Rows("t", pa.RecordBatch.from_pydict({"value": pa.nulls(2)}))
    assert (nothing.nbytes, nothing.slice(0, 0).nbytes, nothing.slice(0, 0).num_rows) == (0, 0, 0)


def test_timestamps_are_rounded_down_even_before_1970() -> None:
    for unit, parts in (("us", 10**3), ("ns", 10**6)):
        ticks = [-parts - 1, -parts, -1, 0, 1, 2**63 - 1, -(2**63) + 1]
        times = pa.array([*ticks, None], pa.timestamp(unit, "UTC"))
        batch = pa.RecordBatch.from_pydict({"value": [b"v"] * 8, "timestamp": times})
        read = read_batch(batch, SHAPES)
        assert [timestamp for *_, timestamp in read] == [*(one // parts for one in ticks), None]
