"""Items of a task that are no columns: the slices that they go in, and the bytes of each."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from kprod.admin import read_topic
from kprod.errors import ConfigError, RecordTooLargeError, RecordTypeError
from kprod.schema.columns.record_plan import Rows
from kprod.spark import partition_writer
from kprod.spark.data_source import MicroBatchWriter
from kprod.spark.executor_producer import MeasuringProducer
from kprod.spark.task_sender import MOST_BYTES, MOST_ROWS, TaskSender
from kprod.types import ProducerRecord

BROKER = {"default_partitions": 1}


def records(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for _, record in read_topic(bootstrap, topic)]


Keyed = Row("key", "value")
Turned = Row("value", "key")
Alone = Row("value")
Marked = Row("value", "headers")

KINDS: list[tuple[Any, bytes | None, bytes | None]] = [
    (Keyed("k", bytearray(b"v")), b"k", b"v"),
    (Keyed(None, "v"), None, b"v"),
    (Keyed(b"k", None), b"k", None),
    (Turned("v", "k"), b"k", b"v"),
    (Alone(b"v"), None, b"v"),
    (Marked("v", [("h", b"1")]), None, b"v"),
    (("k", "v"), b"k", b"v"),
    (("k", "v", None, 1_700_000_000_000), b"k", b"v"),
    ({"key": "k", "value": bytearray(b"v")}, b"k", b"v"),
    (b"v", None, b"v"),
    (bytearray(b"v"), None, b"v"),
    ("v", None, b"v"),
]


def test_items_of_all_kinds_keep_their_order(bootstrap: str) -> None:
    items, expected = [], []
    for turn in range(40):
        for number, (item, key, value) in enumerate(KINDS):
            items += [item] * (turn * number % 7) + [Alone(f"{turn} {number}")]
            expected += [(key, value)] * (turn * number % 7) + [(None, b"%d %d" % (turn, number))]
    writer = partition_writer("mixed", bootstrap_servers=bootstrap)
    (report,) = writer(iter(items))
    assert records(bootstrap, "mixed") == expected
    payload = sum(len(part or b"") for record in expected for part in record)
    assert (report["records"], report["bytes"]) == (len(expected), payload)


def test_what_is_no_record_fails_in_the_midst_of_a_slice(bootstrap: str) -> None:
    writer = partition_writer("odd", bootstrap_servers=bootstrap)
    with pytest.raises(RecordTypeError, match="a tuple of 7"):
        writer(iter([b"v"] * 100 + [tuple(range(7))] + [b"v"] * 100))
    with pytest.raises(RecordTooLargeError):
        writer(iter([b"v"] * 100 + [bytes(2_000_000)]))


class Slices(MeasuringProducer):
    """Takes what a task sends, and keeps how many records came at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def send_rows(self, rows: Rows) -> None:
        self.sizes.append(rows.num_rows)


def sizes(items: Iterator[Any], clock: list[float]) -> list[int]:
    slices = Slices()
    plan = partition_writer("t", bootstrap_servers="broker:9092").plan
    TaskSender(plan, slices, now=lambda: clock[0]).send_items(items)
    return slices.sizes


def test_slices_grow_while_items_are_small_and_come_at_once() -> None:
    found = sizes(iter([b"v"] * 4_000), [0.0])
    assert found[:4] == [1, 2, 4, 8]
    assert max(found) == MOST_ROWS


def test_large_items_do_not_wait_for_many_others() -> None:
    found = sizes(iter([bytes(MOST_BYTES // 4)] * 100), [0.0])
    assert max(found) * MOST_BYTES // 4 <= 2 * MOST_BYTES


def test_items_that_come_slowly_do_not_wait_for_each_other() -> None:
    clock = [0.0]

    def slow() -> Iterator[bytes]:
        yield from [b"v"] * 2_000
        for _ in range(2_000):
            clock[0] += 1
            yield b"v"

    found = sizes(slow(), clock)
    assert max(found) == MOST_ROWS
    assert set(found[-500:]) == {1}


# Formats and column names hold for rows that go one by one, too: never raw bytes instead ----------


AVRO: dict[str, Any] = {"value_format": "avro", "avro_schema": '"string"', "schema_id": 7}
PACKED: dict[str, Any] = {
    "value_format": "avro",
    "avro_schema": """{"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "int"}, {"name": "who", "type": ["null", "string"]}]}""",
    "schema_id": 7,
}
FRAME = b"\0\0\0\0\7"


class Seen:
    """An interceptor that marks each record that it sees."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, headers=(*record.headers, ("seen", b"1")))


class Tuple:
    """A serializer of keys."""

    def serialize(self, _topic: str, _headers: Any, data: Any) -> bytes:
        return repr(data).encode()


Stored = list[tuple[bytes | None, bytes | None]]


def stored(bootstrap: str, topic: str | None, items: list[Any], **options: Any) -> Stored:
    """Keys and values in the topic after one task has written ``items``."""
    list(partition_writer(topic, bootstrap_servers=bootstrap, **options)(iter(items)))
    return [(record.key, record.value) for _, record in read_topic(bootstrap, topic or "named")]


@pytest.mark.parametrize(
    ("topic", "options", "columns", "value"),
    [
        ("seen-avro", AVRO, {"value": ["abc"]}, FRAME + b"\x06abc"),
        ("seen-packed", PACKED, {"id": [1], "who": ["Ada"]}, FRAME + b"\2\2\6Ada"),
        ("seen-struct", {"value_format": "json"}, {"value": [{"a": 1}]}, b'{"a":1}'),
        ("seen-json", {"value_format": "json"}, {"id": [1], "who": ["Ada"]}, None),
    ],
)
def test_columns_are_encoded_before_an_interceptor_sees_their_rows(
    bootstrap: str, topic: str, options: dict[str, Any], columns: Any, value: bytes | None
) -> None:
    rows = pa.RecordBatch.from_pydict(columns)
    found = stored(bootstrap, topic, [rows], interceptors=[Seen()], **options)
    assert found == [(None, value or b'{"id":1,"who":"Ada"}')]
    ((_, record),) = read_topic(bootstrap, topic)
    assert record.headers == (("seen", b"1"),)


def test_a_key_serializer_leaves_the_format_of_the_value_alone(bootstrap: str) -> None:
    rows = pa.RecordBatch.from_pydict({"value": [{"a": 1}], "key": [{"b": 2}]})
    options = {"value_format": "json", "key_serializer": Tuple()}
    assert stored(bootstrap, "keyed", [rows], **options) == [(b"{'b': 2}", b'{"a":1}')]
    items = [{"value": {"a": 1}, "key": {"b": 2}}]
    found = stored(bootstrap, "keyed-items", items, **options)
    assert found == [(b"{'b': 2}", b'{"a":1}')]


@pytest.mark.parametrize(
    ("number", "options", "item", "record"),
    [
        (0, AVRO, "abc", (None, FRAME + b"\6abc")),
        (1, AVRO, {"value": "abc", "key": "k"}, (b"k", FRAME + b"\6abc")),
        (2, AVRO, Row(value="abc"), (None, FRAME + b"\6abc")),
        (3, AVRO, ("k", "abc", {"h": b"1"}, 17), (b"k", FRAME + b"\6abc")),
        (4, AVRO, {"value": None, "key": "k"}, (b"k", None)),
        (5, PACKED, Row(id=1, who="Ada"), (None, FRAME + b"\2\2\6Ada")),
        (6, PACKED, {"id": 1, "who": None, "key": "k"}, (b"k", FRAME + b"\2\0")),
        (7, {"value_format": "json"}, "text as it is", (None, b"text as it is")),
        (8, {"value_format": "json"}, {"value": {"a": [1, None]}}, (None, b'{"a":[1,null]}')),
        (9, {"value_format": "json"}, {"id": 1, "timestamp": 5}, (None, b'{"id":1}')),
        (10, {"value_format": "json"}, Row(a=Row(b=b"x")), (None, b'{"a":{"b":"eA=="}}')),
        (16, {"value_format": "json"}, {"b": bytearray(b"x")}, (None, b'{"b":"eA=="}')),
        (11, {"key_format": "json"}, ({"a": 1}, "v"), (b'{"a":1}', b"v")),
        (
            12,
            {"value_format": "json"},
            {"at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)},
            (None, b'{"at":"2026-01-02T00:00:00.000Z"}'),
        ),
        (13, {"columns": {"value": "payload"}}, {"payload": "abc"}, (None, b"abc")),
        (14, {"columns": {"value": "payload"}}, Row(payload="abc"), (None, b"abc")),
        (
            15,
            {"value_format": "json", "columns": {"key": "tail"}},
            Row(id=1, tail="N1"),
            (b"N1", b'{"id":1,"tail":"N1"}'),
        ),
    ],
)  # fmt: skip
def test_an_item_has_the_bytes_that_its_row_of_a_batch_would(
    bootstrap: str, number: int, options: dict[str, Any], item: Any, record: Any
) -> None:
    assert stored(bootstrap, f"item-{number}", [item, item], **options) == [record] * 2


def test_the_bytes_of_an_item_do_not_depend_on_its_neighbours(bootstrap: str) -> None:
    """In one column 1 would become 1.0 beside 1.5."""
    items = [{"n": 1}, {"n": 1.5}, {"n": "x", "m": None}]
    found = stored(bootstrap, "neighbours", items, value_format="json")
    assert [value for _, value in found] == [b'{"n":1}', b'{"n":1.5}', b'{"n":"x"}']


def test_a_column_may_name_the_topic_of_items(bootstrap: str) -> None:
    items = [Row(value="abc", where="named")]
    assert stored(bootstrap, None, items, columns={"topic": "where"}) == [(None, b"abc")]


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ({"value": object()}, "value: no Arrow column holds this object"),
        ({"value": 1.5}, "value: double does not fit the Avro type string"),
        ({"value": {"a": [1, "x"]}}, "value: "),
        ({"value": 2**70}, "value: "),
        ({"id": 1}, "value: struct<id: int64> does not fit"),
    ],
)
def test_an_item_that_the_format_cannot_write_is_invalid(
    bootstrap: str, item: Any, complaint: str
) -> None:
    with pytest.raises(RecordTypeError, match=complaint):
        stored(bootstrap, "unfit", [item], **AVRO)
    letters: dict[str, Any] = {"on_row_error": "dead_letter", "dead_letter_topic": "unfit-dead"}
    writer = partition_writer("unfit-but-one", bootstrap_servers=bootstrap, **AVRO, **letters)
    (report,) = writer(iter([item, "abc"]))
    assert (report["records"], report["dead_letters"]) == (1, 1)


def test_what_has_no_bytes_or_time_is_a_dead_letter(bootstrap: str) -> None:
    odd = [{"value": "\ud800"}, "\ud800", ("k", "v", None, datetime.datetime(1, 1, 1)), Keyed("k")]
    letters: dict[str, Any] = {"on_row_error": "dead_letter", "dead_letter_topic": "odd-dead"}
    (report,) = partition_writer("odd", bootstrap_servers=bootstrap, **letters)(iter([*odd, "v"]))
    assert (report["records"], report["dead_letters"]) == (1, 4)
    assert [value for _, value in records(bootstrap, "odd-dead")][:2] == [b"?", b"?"]


@pytest.mark.parametrize(
    "options",
    [
        {**AVRO, "value_serializer": str.encode},
        {"value_format": "json", "value.serializer": str.encode},
        {"key_format": "json", "key_serializer": str.encode},
    ],
)
def test_a_format_and_a_serializer_exclude_each_other(options: dict[str, Any]) -> None:
    role = next(iter(options)).partition("_")[0]
    complaint = f"{role}_format and {role}_serializer cannot be combined"
    with pytest.raises(ConfigError, match=complaint):
        partition_writer("t", bootstrap_servers="broker:9092", **options)


def test_every_spark_passes_arrow_batches_to_a_stream() -> None:
    """Spark 4.0 has no ``DataSourceStreamArrowWriter``; it looks for the one of batch jobs."""
    assert issubclass(MicroBatchWriter, DataSourceArrowWriter)
    assert issubclass(MicroBatchWriter, DataSourceStreamWriter)
