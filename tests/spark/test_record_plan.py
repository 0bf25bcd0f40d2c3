"""Which items of a partition, and which columns, become which arguments of ``send``."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from kprod.errors import RecordTypeError
from kprod.schema.columns.payload_format import PayloadFormat
from kprod.schema.columns.record_plan import RecordPlan, read_batch
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
    ],
    ids=steady_repr,
)
def test_an_item_becomes_arguments(item: Any, arguments: tuple[Any, ...]) -> None:
    assert SHAPES.read(item) == arguments


def test_rows_of_a_partition_may_differ() -> None:
    read = SHAPES.read
    assert read(Row(key="k", value="v")) == ("t", b"v", b"k", None, None, None)
    assert read(Row(value="v", key="k")) == ("t", b"v", b"k", None, None, None)
    assert read(Row(value="v")) == ("t", b"v", None, None, None, None)
    assert read(Row(value="v", partition=2)) == ("t", b"v", None, None, 2, None)
    assert read(b"v") == ("t", b"v", None, None, None, None)
    with pytest.raises(RecordTypeError, match="not part of a Kafka record"):
        read(Row(value="v", carrier="UA"))
    with pytest.raises(RecordTypeError, match="not part of a Kafka record"):
        read(Row(value="v", carrier="UA"))


def test_a_timestamp_without_zone_is_local_time() -> None:
    local = NOON.astimezone().replace(tzinfo=None)
    assert SHAPES.read({"value": b"", "timestamp": local})[5] == NOON_MS


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
def test_what_is_no_record_is_refused(item: Any, complaint: str) -> None:
    with pytest.raises(RecordTypeError, match=complaint):
        SHAPES.read(item)


def test_a_packed_value_has_no_column_twice() -> None:
    """A frame that was joined to another one may have two of a name."""
    plan = RecordPlan(topic="t", value=PayloadFormat("json"))
    with pytest.raises(RecordTypeError, match="more than one column 'id'"):
        plan.find(["id", "name", "id"])


def test_a_record_needs_a_topic() -> None:
    with pytest.raises(RecordTypeError, match="has no topic"):
        RecordPlan(topic=None).read(b"v")


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


def test_times_before_1970_are_cut_downwards() -> None:
    for unit in ("us", "ns"):
        parts = {"us": 10**3, "ns": 10**6}[unit]
        told = [-parts - 1, -parts, -1, 0, 1, 2**63 - 1, -(2**63) + 1]
        times = pa.array([*told, None], pa.timestamp(unit, "UTC"))
        batch = pa.RecordBatch.from_pydict({"value": [b"v"] * 8, "timestamp": times})
        read = read_batch(batch, RecordPlan(topic="t"))
        assert [timestamp for *_, timestamp in read] == [*(each // parts for each in told), None]
