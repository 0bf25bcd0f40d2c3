"""Arrow columns of every type become records."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import re
from typing import Any

import pyarrow as pa
import pytest

from kprod.admin import read_topic
from kprod.errors import RecordTypeError
from kprod.producer import KafkaProducer
from kprod.schema.columns.encoded_columns import EncodedColumns
from kprod.schema.columns.record_plan import Rows
from kprod.schema.encoding import JsonEncoding
from kprod.spark import partition_writer
from kprod.spark.executor_producer import MeasuringProducer
from kprod.spark.task_sender import READ_ROWS, TaskSender
from kprod.types import ProducerRecord
from tests.spark.one_task import report_of, stored, values
from tests.support.steady_names import steady_repr

ROWS = 40
MOMENT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)
MS = 1_700_000_000_123


def column(cell: Any, kind: Any = None) -> Any:
    return pa.array([cell] * ROWS, kind)


@pytest.mark.parametrize(
    ("role", "cells", "expected"),
    [
        ("value", column("v").dictionary_encode(), b"v"),
        ("value", column("v", pa.string_view()), b"v"),
        ("key", column(b"k").dictionary_encode(), b"k"),
        ("partition", column(1, pa.int8()), 1),
        ("partition", column(1, pa.uint16()), 1),
        ("partition", column(1, pa.int64()), 1),
        ("timestamp", column(MOMENT, pa.timestamp("ms", "UTC")), MS),
        ("timestamp", column(MOMENT, pa.timestamp("us", "Asia/Tokyo")), MS),
        ("timestamp", column(MOMENT, pa.timestamp("ns", "UTC")), MS),
        ("timestamp", column(MOMENT.replace(microsecond=0), pa.timestamp("s", "UTC")), MS - 123),
        ("timestamp", column(17, pa.int32()), 17),
        ("headers", column([{"value": b"x", "key": "h"}]), (("h", b"x"),)),
        ("headers", column([("h", b"x")], pa.map_(pa.string(), pa.binary())), (("h", b"x"),)),
    ],
    ids=lambda cell: str(getattr(cell, "type", cell)),
)
def test_every_column_type_is_converted(kafka: str, role: str, cells: Any, expected: Any) -> None:
    topic = f"{role}-{re.sub('[^a-z0-9]+', '-', str(cells.type))}"
    rows = pa.RecordBatch.from_pydict({"value": column("v"), role: cells})
    assert report_of(kafka, topic, [rows])["records"] == ROWS
    found = list(read_topic(kafka, topic))
    found_cells = [p if role == "partition" else getattr(record, role) for p, record in found]
    assert found_cells == [expected] * ROWS


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"value": column(1.5)}, "value: the column must be string or binary, not double"),
        ({"key": column(1)}, "key: the column must be string or binary, not int64"),
        ({"partition": column("one")}, "partition: .* an integer, not string"),
        ({"timestamp": column(True)}, "timestamp: .* a timestamp.*, not bool"),
        ({"topic": column(1)}, "topic: .* a string, not int64"),
        # Struct fields are matched by name, not by position.
        ({"headers": column([{"name": "x", "value": "x"}])}, "headers: .*key: string and"),
        ({"headers": column([{"key": "x", "value": "x", "z": "x"}])}, "headers: .*key: string and"),
        (
            {"headers": column([("a", 1)], pa.map_(pa.string(), pa.int64()))},
            "headers: .* a map of string to binary",
        ),
    ],
    ids=steady_repr,
)
def test_a_column_with_a_wrong_type_is_refused(columns: dict[str, Any], complaint: str) -> None:
    rows = pa.RecordBatch.from_pydict({"value": column("v"), **columns})
    topic = None if "topic" in columns else "t"
    with pytest.raises(RecordTypeError, match=complaint):
        report_of("127.0.0.1:1", topic, [rows])


def test_each_row_goes_to_the_topic_it_names_in_order(kafka: str) -> None:
    names = [f"named-{row % 3}" for row in range(ROWS * 3)]
    rows = {
        "value": [str(row) for row in range(ROWS * 3)],
        "topic": pa.array(names).dictionary_encode(),
        "partition": [0] * ROWS * 3,
    }
    report_of(kafka, None, [pa.RecordBatch.from_pydict(rows)])
    for number in range(3):
        found = [int(value or b"") for _, value in stored(kafka, f"named-{number}")]
        assert found == list(range(number, ROWS * 3, 3))


def test_interceptors_get_python_objects(kafka: str) -> None:
    kinds: dict[str, tuple[Any, Any]] = {
        "flag": (pa.bool_(), True),
        "number": (pa.int64(), -(2**63)),
        "half": (pa.float32(), 0.5),
        "price": (pa.decimal128(9, 2), decimal.Decimal("-1.10")),
        "text": (pa.string(), "\u20ac"),
        "data": (pa.binary(), b"\x00\xff"),
        "day": (pa.date32(), MOMENT.date()),
        "at": (pa.timestamp("us", "UTC"), MOMENT),
        "local": (pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
        "span": (pa.duration("us"), datetime.timedelta(days=1, microseconds=-1)),
        "list": (pa.list_(pa.int8()), [1, None]),
        "map": (pa.map_(pa.string(), pa.list_(pa.int8())), {"k": [1], "l": None}),
        "inner": (pa.struct([("x", pa.int8())]), {"x": None}),
        "nothing": (pa.null(), None),
    }
    objects = {name: cell for name, (_, cell) in kinds.items()}
    struct = pa.struct([(name, kind) for name, (kind, _) in kinds.items()])
    rows = pa.RecordBatch.from_pydict({"value": column(objects, struct)})
    seen: list[Any] = []
    report_of(kafka, "objects", [rows], interceptors=[Keeps(seen)])
    assert seen == [objects] * ROWS


class Keeps:
    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self._seen.append(record.value)
        return dataclasses.replace(record, value=b"")


def test_a_date_beyond_pythons_range_makes_its_row_invalid(kafka: str) -> None:
    days = pa.array([0, 2_932_897], pa.int32()).cast(pa.date32())
    rows = pa.RecordBatch.from_pydict({"value": days})
    options: dict[str, Any] = {"value_serializer": lambda value: str(value).encode()}
    report = report_of(kafka, "dates", [rows], on_row_error="skip", **options)
    assert (report["skipped"], values(kafka, "dates")) == (1, [b"1970-01-01"])
    assert "no form in Python" in report["reasons"][0]


def test_columns_are_sent_in_bulk_only() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "value": column({"a": 1}),
            "key": column("k").dictionary_encode(),
            "partition": column(1, pa.int16()),
            "topic": pa.array([f"t{row % 2}" for row in range(ROWS)]),
        }
    )
    writer = partition_writer(bootstrap_servers="broker:9092", value_format="json")
    producer = BulkOnly()
    TaskSender(writer.plan, producer).send_batches([rows])
    assert (producer.rows, producer.bytes) == (ROWS, ROWS * len('{"a":1}' + "k"))


class BulkOnly(MeasuringProducer):
    def send(self, *arguments: Any, **options: Any) -> None:
        raise AssertionError("a single row was sent")


def test_a_serializer_gets_every_row_of_a_large_batch(kafka: str) -> None:
    rows = 2 * READ_ROWS + 1
    batch = pa.RecordBatch.from_pydict({"value": list(range(rows))})
    report_of(kafka, "large", [batch], value_serializer=lambda value: b"%d" % value)
    assert values(kafka, "large") == sorted(b"%d" % row for row in range(rows))


def test_columns_of_type_null_are_ignored(kafka: str) -> None:
    columns = {name: pa.nulls(1) for name in ("key", "headers", "partition", "timestamp")}
    rows = Rows("untyped", pa.RecordBatch.from_pydict({"value": ["v"], **columns}))
    with KafkaProducer(bootstrap_servers=kafka) as producer:
        rows.send(producer).get(timeout=30)
    ((_, record),) = read_topic(kafka, "untyped")
    assert (record.key, record.value, list(record.headers)) == (None, b"v", [])


def test_a_row_error_with_a_large_schema_and_value_is_truncated() -> None:
    schema = json.dumps({"type": "string", "maxLength": 1, "description": "x" * 100_000})
    column = pa.array(["y" * 100_000])
    _, errors = EncodedColumns(JsonEncoding(schema)).converter(column.type)(column)
    assert "does not fit the schema: ValidationError: 'yyy" in str(errors[0])
    assert len(str(errors[0])) < 1_000
