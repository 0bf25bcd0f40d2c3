"""Items of a task that are no columns: the slices that they go in, and the bytes of each."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from kprod.admin import read_topic
from kprod.errors import KprodError, RecordTooLargeError, RecordTypeError
from kprod.schema.columns.record_plan import Rows
from kprod.spark import partition_writer
from kprod.spark.data_source import MicroBatchWriter
from kprod.spark.executor_producer import MeasuringProducer
from kprod.spark.task_sender import MOST_BYTES, MOST_ROWS, TaskSender
from kprod.types import ProducerRecord
from tests.spark.one_task import report_of, stored
from tests.support.steady_names import steady_repr

BROKER = {"default_partitions": 1}

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
    report = report_of(bootstrap, "mixed", items)
    assert stored(bootstrap, "mixed") == expected
    payload = sum(len(part or b"") for record in expected for part in record)
    assert (report["records"], report["bytes"]) == (len(expected), payload)


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (bytes(2_000_000), RecordTooLargeError),
        (tuple(range(7)), RecordTypeError),
        (17, RecordTypeError),
        (None, RecordTypeError),
    ],
    ids=["too large", "long tuple", "number", "None"],
)
@pytest.mark.parametrize("before", [0, 1, 100])
def test_what_is_no_record_fails_the_task_at_any_place(
    bootstrap: str, item: Any, error: type[KprodError], before: int
) -> None:
    with pytest.raises(error):
        report_of(bootstrap, "no-record", [*[b"v"] * before, item, b"v"])


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
JSON: dict[str, Any] = {"value_format": "json"}
FRAME = b"\0\0\0\0\7"
NUMBERS = count()

Stored = list[tuple[bytes | None, bytes | None]]


def written(bootstrap: str, items: list[Any], **options: Any) -> Stored:
    """Keys and values in a topic of its own after one task has written ``items``."""
    topic = f"of-its-own-{next(NUMBERS)}"
    report_of(bootstrap, topic, items, **options)
    return stored(bootstrap, topic)


class Seen:
    """An interceptor that marks each record that it sees."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, headers=(*record.headers, ("seen", b"1")))


@pytest.mark.parametrize(
    ("topic", "options", "columns", "value"),
    [
        ("seen-avro", AVRO, {"value": ["abc"]}, FRAME + b"\x06abc"),
        ("seen-packed", PACKED, {"id": [1], "who": ["Ada"]}, FRAME + b"\2\2\6Ada"),
        ("seen-struct", JSON, {"value": [{"a": 1}]}, b'{"a":1}'),
        ("seen-json", JSON, {"id": [1], "who": ["Ada"]}, b'{"id":1,"who":"Ada"}'),
    ],
)
def test_columns_are_encoded_before_an_interceptor_sees_their_rows(
    bootstrap: str, topic: str, options: dict[str, Any], columns: Any, value: bytes
) -> None:
    rows = pa.RecordBatch.from_pydict(columns)
    report_of(bootstrap, topic, [rows], interceptors=[Seen()], **options)
    ((_, record),) = read_topic(bootstrap, topic)
    assert (record.key, record.value, record.headers) == (None, value, (("seen", b"1"),))


def test_a_key_serializer_leaves_the_format_of_the_value_alone(bootstrap: str) -> None:
    item = {"value": {"a": 1}, "key": {"b": 2}}
    for items in ([pa.RecordBatch.from_pylist([item])], [item]):
        found = written(bootstrap, items, **JSON, key_serializer=lambda key: repr(key).encode())
        assert found == [(b"{'b': 2}", b'{"a":1}')]


@pytest.mark.parametrize(
    ("options", "item", "record"),
    [
        (AVRO, "abc", (None, FRAME + b"\6abc")),
        (AVRO, {"value": "abc", "key": "k"}, (b"k", FRAME + b"\6abc")),
        (AVRO, Row(value="abc"), (None, FRAME + b"\6abc")),
        (AVRO, ("k", "abc", {"h": b"1"}, 17), (b"k", FRAME + b"\6abc")),
        (AVRO, {"value": None, "key": "k"}, (b"k", None)),
        (PACKED, Row(id=1, who="Ada"), (None, FRAME + b"\2\2\6Ada")),
        (PACKED, {"id": 1, "who": None, "key": "k"}, (b"k", FRAME + b"\2\0")),
        (JSON, "text as it is", (None, b"text as it is")),
        (JSON, {"value": {"a": [1, None]}}, (None, b'{"a":[1,null]}')),
        (JSON, {"id": 1, "timestamp": 5}, (None, b'{"id":1}')),
        (JSON, Row(a=Row(b=b"x")), (None, b'{"a":{"b":"eA=="}}')),
        (JSON, {"b": bytearray(b"x")}, (None, b'{"b":"eA=="}')),
        (
            JSON,
            {"at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)},
            (None, b'{"at":"2026-01-02T00:00:00.000Z"}'),
        ),
        ({"key_format": "json"}, ({"a": 1}, "v"), (b'{"a":1}', b"v")),
        ({"columns": {"value": "payload"}}, {"payload": "abc"}, (None, b"abc")),
        ({"columns": {"value": "payload"}}, Row(payload="abc"), (None, b"abc")),
        (
            {**JSON, "columns": {"key": "tail"}},
            Row(id=1, tail="N1"),
            (b"N1", b'{"id":1,"tail":"N1"}'),
        ),
    ],
    ids=steady_repr,
)
def test_an_item_has_the_bytes_that_its_row_of_a_batch_would(
    bootstrap: str, options: dict[str, Any], item: Any, record: Any
) -> None:
    assert written(bootstrap, [item, item], **options) == [record] * 2


def test_the_bytes_of_an_item_do_not_depend_on_its_neighbours(bootstrap: str) -> None:
    """In one column 1 would become 1.0 beside 1.5."""
    found = written(bootstrap, [{"n": 1}, {"n": 1.5}, {"n": "x", "m": None}], **JSON)
    assert [value for _, value in found] == [b'{"n":1}', b'{"n":1.5}', b'{"n":"x"}']


def test_a_column_may_name_the_topic_of_items(bootstrap: str) -> None:
    items = [Row(value="abc", where="named")]
    report_of(bootstrap, None, items, columns={"topic": "where"})
    assert stored(bootstrap, "named") == [(None, b"abc")]


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ({"value": object()}, "value: no Arrow column holds this object"),
        ({"value": 1.5}, "value: double does not fit the Avro type string"),
        ({"value": {"a": [1, "x"]}}, "value: "),
        ({"value": 2**70}, "value: "),
        ({"id": 1}, "value: struct<id: int64> does not fit"),
    ],
    ids=steady_repr,
)
def test_an_item_that_the_format_cannot_write_is_invalid(
    bootstrap: str, item: Any, complaint: str
) -> None:
    with pytest.raises(RecordTypeError, match=complaint):
        report_of(bootstrap, "unfit", [item], **AVRO)
    report = report_of(bootstrap, "unfit", [item, "abc"], **AVRO, on_row_error="skip")
    assert (report["records"], report["skipped"]) == (1, 1)


def test_what_has_no_bytes_or_time_is_a_dead_letter(bootstrap: str) -> None:
    odd = [{"value": "\ud800"}, "\ud800", ("k", "v", None, datetime.datetime(1, 1, 1)), Keyed("k")]
    letters: dict[str, Any] = {"on_row_error": "dead_letter", "dead_letter_topic": "odd-dead"}
    report = report_of(bootstrap, "odd", [*odd, "v"], **letters)
    assert (report["records"], report["dead_letters"]) == (1, 4)
    assert [value for _, value in stored(bootstrap, "odd-dead")][:2] == [b"?", b"?"]


def test_every_spark_passes_arrow_batches_to_a_stream() -> None:
    """Spark 4.0 has no ``DataSourceStreamArrowWriter``; it looks for the one of batch jobs."""
    assert issubclass(MicroBatchWriter, DataSourceArrowWriter)
    assert issubclass(MicroBatchWriter, DataSourceStreamWriter)
