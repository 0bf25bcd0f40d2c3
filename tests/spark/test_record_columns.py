"""Columns of every type become the records that their rows would, without a look at the rows."""

from __future__ import annotations

import datetime
import io
import json
import re
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from kprod.errors import ConfigError, RecordTypeError
from kprod.producer import KafkaProducer
from kprod.schema.columns.encoded_columns import EncodedColumns
from kprod.schema.columns.record_plan import RecordPlan, Rows
from kprod.schema.encoding import JsonEncoding
from kprod.spark import partition_writer
from kprod.spark.executor_producer import MeasuringProducer
from kprod.spark.task_sender import READ_ROWS, TaskSender
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
def test_every_type_of_column(kafka: str, role: str, cells: Any, expected: Any) -> None:
    topic = f"{role}-{re.sub('[^a-z0-9]+', '-', str(cells.type))}"
    rows = pa.RecordBatch.from_pydict({"value": column("v"), role: cells})
    (report,) = partition_writer(topic, bootstrap_servers=kafka)(iter([rows]))
    assert report.to_pylist()[0]["records"] == ROWS
    found = list(read_topic(kafka, topic))
    told = [p if role == "partition" else getattr(record, role) for p, record in found]
    assert told == [expected] * ROWS


def test_each_row_goes_to_the_topic_it_names_in_order(kafka: str) -> None:
    topics = [f"named-{row % 3}" for row in range(ROWS * 3)]
    rows = pa.RecordBatch.from_pydict(
        {
            "value": [str(row) for row in range(ROWS * 3)],
            "topic": pa.array(topics).dictionary_encode(),
            "partition": [0] * ROWS * 3,
        }
    )
    list(partition_writer(bootstrap_servers=kafka)(iter([rows])))
    for number in range(3):
        found = [int(r.value or b"") for _, r in read_topic(kafka, f"named-{number}")]
        assert found == list(range(number, ROWS * 3, 3))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"value": [1.5] * ROWS}, "value: the column must be string or binary, not double"),
        (
            {"value": column("v"), "partition": column("one")},
            "partition: .* an integer, not string",
        ),
        ({"value": column("v"), "topic": column(1)}, "topic: .* a string, not int64"),
    ],
    ids=steady_repr,
)
def test_a_column_of_another_type_is_named(
    kafka: str, columns: dict[str, Any], complaint: str
) -> None:
    topic = None if "topic" in columns else "t"
    with pytest.raises(RecordTypeError, match=complaint):
        partition_writer(topic, bootstrap_servers=kafka)(
            iter([pa.RecordBatch.from_pydict(columns)])
        )


def test_a_text_that_is_no_utf_8_is_the_fault_of_its_row(kafka: str) -> None:
    """Spark lets any bytes pass for text; Avro has no place for them."""
    texts = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 1, 3)), pa.py_buffer(b"\xffok")]
    )
    fields = [{"name": "text", "type": "string"}]
    writer = partition_writer(
        "half-text",
        bootstrap_servers=kafka,
        value_format="avro",
        avro_schema=json.dumps({"type": "record", "name": "Row", "fields": fields}),
        on_row_error="skip",
    )
    (report,) = writer(iter([pa.RecordBatch.from_pydict({"text": texts})]))
    (told,) = report.to_pylist()
    assert (told["records"], told["skipped"]) == (1, 1)
    assert "text: a text that is no UTF-8" in told["reasons"][0]


def test_maps_are_maps_in_every_format(kafka: str) -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.int64()))])
    rows = [{"m": [("a", 1), ("b", 2)]}] * ROWS
    batch = pa.RecordBatch.from_pydict({"value": pa.array(rows, kind)})
    fields = [{"name": "m", "type": {"type": "map", "values": "long"}}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    formats: dict[str, dict[str, Any]] = {
        "maps-avro": {"value_format": "avro", "avro_schema": json.dumps(schema)},
        "maps-json": {"value_format": "json"},
        "maps-by-row": {"value_serializer": lambda value: json.dumps(value).encode()},
    }
    for topic, options in formats.items():
        list(partition_writer(topic, bootstrap_servers=kafka, **options)(iter([batch])))
        values = [record.value or b"" for _, record in read_topic(kafka, topic)]
        read: list[Any] = [
            fastavro.schemaless_reader(io.BytesIO(value), schema, None)
            if topic == "maps-avro"
            else json.loads(value)
            for value in values
        ]
        assert read == [{"m": {"a": 1, "b": 2}}] * ROWS


@pytest.mark.parametrize("options", [{"value_serializer": str.encode}, {"value_format": "json"}])
def test_a_date_that_python_does_not_have(kafka: str, options: dict[str, Any]) -> None:
    """For a serializer it is the fault of its row; a format has a text for it."""
    topic = f"dates-{next(iter(options)).replace('_', '-')}"
    by_row = "value_serializer" in options
    options = {"value_serializer": lambda value: str(value).encode()} if by_row else options
    days = pa.array([0, 2_932_897], pa.int32()).cast(pa.date32())
    writer = partition_writer(topic, bootstrap_servers=kafka, on_row_error="skip", **options)
    (report,) = writer(iter([pa.RecordBatch.from_pydict({"value": days})]))
    (told,) = report.to_pylist()
    values = [record.value or b"" for _, record in read_topic(kafka, topic)]
    if by_row:
        assert (told["skipped"], values) == (1, [b"1970-01-01"])
        assert "no form in Python" in told["reasons"][0]
    else:
        assert sorted(values) == [b'"+10000-01-01"', b'"1970-01-01"']


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"value_format": "xml"}, "value_format: expected one of"),
        ({"value_format": "avro"}, "needs avro_schema"),
        ({"value_format": "avro", "avro_schema": "{"}, "avro_schema: "),
        ({"avro_schema": '"long"'}, "requires value_format"),
        ({"subject": "s"}, "require value_format"),
        ({"value_format": "avro", "subject": "s"}, "subject requires schema_registry"),
        ({"value_format": "json_schema", "json_schema": "{}"}, "needs schema_registry"),
        (
            {"value_format": "protobuf", "subject": "s", "schema_registry": "http://localhost"},
            "needs protobuf_message",
        ),
        ({"columns": {"colour": "c"}}, "expected parts of a record.*'colour'"),
        ({"on_row_error": "ignore"}, "on_row_error: expected one of"),
        ({"on_row_error": "dead_letter"}, "require each other"),
        ({"dead_letter_topic": "d"}, "require each other"),
    ],
    ids=steady_repr,
)
def test_a_bad_option_is_told_on_the_driver(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        partition_writer("t", bootstrap_servers="broker:9092", **options)


def test_a_plan_finds_its_columns_or_say_what_is_missing() -> None:
    plan = RecordPlan(topic=None, columns={"value": "payload"})
    assert plan.find(["payload", "key"]) == {"value": "payload", "key": "key"}
    for columns, complaint in (
        (["key"], "no column 'payload'"),
        (["payload", "payload"], "more than one column 'payload'"),
        (["payload", "carrier"], "columns .'carrier'. are not part"),
    ):
        with pytest.raises(RecordTypeError, match=complaint):
            plan.find(columns)


def test_the_sender_looks_at_no_row_by_itself() -> None:
    """What is not of the application's own goes to ``send_arrow`` as it is."""
    rows = pa.RecordBatch.from_pydict(
        {
            "value": column({"a": 1}),
            "key": column("k").dictionary_encode(),
            "partition": column(1, pa.int16()),
            "topic": pa.array([f"t{row % 2}" for row in range(ROWS)]),
        }
    )
    writer = partition_writer(bootstrap_servers="broker:9092", value_format="json")
    producer = MeasuringProducer()
    TaskSender(writer.plan, OnlyCalls(producer)).send_batches([rows])
    assert (producer.rows, producer.bytes) == (ROWS, ROWS * len('{"a":1}' + "k"))
    assert writer.plan.by_row is False


class OnlyCalls(MeasuringProducer):
    """A task's producer that takes rows by bulk calls alone."""

    def __init__(self, counts: MeasuringProducer) -> None:
        super().__init__()
        self._counts = counts

    def send(self, *arguments: Any, **options: Any) -> None:
        raise AssertionError("a row by itself")

    def send_rows(self, rows: Rows) -> None:
        self._counts.send_rows(rows)


@pytest.mark.parametrize("names", [("name", "value"), ("key", "value", "other")])
def test_headers_need_a_key_and_a_value(kafka: str, names: tuple[str, ...]) -> None:
    """By position a name could be taken for a value."""
    rows = pa.RecordBatch.from_pydict(
        {"value": column("v"), "headers": column([dict.fromkeys(names, "x")])}
    )
    with pytest.raises(RecordTypeError, match=r"headers: .*structs of key: string and"):
        partition_writer("t", bootstrap_servers=kafka)(iter([rows]))


def test_every_row_of_a_large_batch_goes_to_a_serializer(kafka: str) -> None:
    rows = 2 * READ_ROWS + 1
    batch = pa.RecordBatch.from_pydict({"value": list(range(rows))})
    writer = partition_writer(
        "large", bootstrap_servers=kafka, value_serializer=lambda value: b"%d" % value
    )
    list(writer(iter([batch])))
    found = {record.value for _, record in read_topic(kafka, "large")}
    assert found == {b"%d" % row for row in range(rows)}


# What rows weigh that are sent by one call, and which of their columns are sent -------------------


PAYLOADS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]


@pytest.mark.parametrize("kind", PAYLOADS, ids=str)
def test_text_and_bytes_are_weighed(kind: Any) -> None:
    column = pa.array(["a", None, "gr\u00fcn", ""]).cast(kind)
    batch = pa.RecordBatch.from_arrays([column, column.slice(0)], ["value", "key"])
    assert Rows("t", batch).slice(1).nbytes == 2 * len("gr\u00fcn".encode())


def test_nothing_weighs_nothing() -> None:
    nothing = {"value": pa.nulls(2), "key": pa.array([None, None], pa.string())}
    rows = Rows("t", pa.RecordBatch.from_pydict(nothing))
    assert (rows.nbytes, rows.slice(0, 0).nbytes, rows.slice(0, 0).num_rows) == (0, 0, 0)


def test_rows_are_weighed_and_cut() -> None:
    payloads = {"value": [b"a", None, b"ccc"], "key": [None, b"k", b"kk"]}
    rows = Rows("t", pa.RecordBatch.from_pydict(payloads))
    assert (rows.num_rows, rows.nbytes) == (3, 7)
    assert (rows.slice(1, 1).num_rows, rows.slice(1, 1).nbytes) == (1, 1)
    assert rows.slice(1).arguments(1) == ("t", b"ccc", b"kk", None, None, None)
    unkeyed = Rows("t", pa.RecordBatch.from_pydict({"value": [b"a"]}))
    assert unkeyed.slice(0).arguments(0)[2] is None


def test_columns_without_a_type_are_left_out() -> None:
    columns = {name: pa.nulls(1) for name in ("key", "headers", "partition", "timestamp")}
    rows = Rows("t", pa.RecordBatch.from_pydict({"value": ["v"], **columns}))
    with (
        EmbeddedBroker() as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        rows.send(producer).get(timeout=30)
        (record,) = broker.records("t")
    assert (record.key, record.value, list(record.headers)) == (None, b"v", [])


def test_the_error_of_a_row_is_short_however_large_its_schema_and_value_are() -> None:
    schema = json.dumps({"type": "string", "maxLength": 1, "description": "x" * 100_000})
    column = pa.array(["y" * 100_000])
    _, faults = EncodedColumns(JsonEncoding(schema)).converter(column.type)(column)
    assert "does not fit the schema: ValidationError: 'yyy" in str(faults[0])
    assert len(str(faults[0])) < 1_000
