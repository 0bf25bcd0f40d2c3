"""Single items of a task: their slices and their encoding."""

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
Reversed = Row("value", "key")
ValueOnly = Row("value")
WithHeaders = Row("value", "headers")

KINDS: list[tuple[Any, bytes | None, bytes | None]] = [
    (Keyed("k", bytearray(b"v")), b"k", b"v"),
    (Keyed(None, "v"), None, b"v"),
    (Keyed(b"k", None), b"k", None),
    (Reversed("v", "k"), b"k", b"v"),
    (ValueOnly(b"v"), None, b"v"),
    (WithHeaders("v", [("h", b"1")]), None, b"v"),
    (("k", "v"), b"k", b"v"),
    (("k", "v", None, 1_700_000_000_000), b"k", b"v"),
    ({"key": "k", "value": bytearray(b"v")}, b"k", b"v"),
    (b"v", None, b"v"),
    (bytearray(b"v"), None, b"v"),
    ("v", None, b"v"),
]


def test_items_of_all_kinds_keep_their_order(bootstrap: str) -> None:
    items, expected = [], []
    for times in range(40):
        for number, (item, key, value) in enumerate(KINDS):
            items += [item] * (times * number % 7) + [ValueOnly(f"{times} {number}")]
            expected += [(key, value)] * (times * number % 7) + [(None, b"%d %d" % (times, number))]
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
def test_an_invalid_item_fails_the_task_at_any_position(
    bootstrap: str, item: Any, error: type[KprodError], before: int
) -> None:
    with pytest.raises(error):
        report_of(bootstrap, "invalid", [*[b"v"] * before, item, b"v"])


class Slices(MeasuringProducer):
    """A producer that keeps the sizes of the slices that a task sends."""

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


def test_slices_grow_while_items_are_small_and_arrive_fast() -> None:
    found = sizes(iter([b"v"] * 4_000), [0.0])
    assert found[:4] == [1, 2, 4, 8]
    assert max(found) == MOST_ROWS


def test_slices_of_large_items_stay_small() -> None:
    found = sizes(iter([bytes(MOST_BYTES // 4)] * 100), [0.0])
    assert max(found) * MOST_BYTES // 4 <= 2 * MOST_BYTES


def test_slices_of_slow_items_shrink_to_one() -> None:
    clock = [0.0]

    def slow() -> Iterator[bytes]:
        yield from [b"v"] * 2_000
        for _ in range(2_000):
            clock[0] += 1
            yield b"v"

    found = sizes(slow(), clock)
    assert max(found) == MOST_ROWS
    assert set(found[-500:]) == {1}


# Formats and column names of single items ---------------------------------------------------------


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
    topic = f"of-its-own-{next(NUMBERS)}"
    report_of(bootstrap, topic, items, **options)
    return stored(bootstrap, topic)


class AddsHeader:
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
    report_of(bootstrap, topic, [rows], interceptors=[AddsHeader()], **options)
    ((_, record),) = read_topic(bootstrap, topic)
    assert (record.key, record.value, record.headers) == (None, value, (("seen", b"1"),))


def test_a_key_serializer_does_not_change_the_value_format(bootstrap: str) -> None:
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
def test_formats_and_column_names_apply_to_single_items(
    bootstrap: str, options: dict[str, Any], item: Any, record: Any
) -> None:
    assert written(bootstrap, [item, item], **options) == [record] * 2


def test_the_encoding_of_an_item_does_not_depend_on_other_items(bootstrap: str) -> None:
    """In one Arrow column, 1 would become 1.0 because of 1.5."""
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


def test_text_times_and_tuples_that_are_invalid_become_dead_letters(bootstrap: str) -> None:
    odd = [{"value": "\ud800"}, "\ud800", ("k", "v", None, datetime.datetime(1, 1, 1)), Keyed("k")]
    letters: dict[str, Any] = {"on_row_error": "dead_letter", "dead_letter_topic": "odd-dead"}
    report = report_of(bootstrap, "odd", [*odd, "v"], **letters)
    assert (report["records"], report["dead_letters"]) == (1, 4)
    assert [value for _, value in stored(bootstrap, "odd-dead")][:2] == [b"?", b"?"]


def test_the_stream_writer_accepts_arrow_batches_in_every_spark() -> None:
    """Spark 4.0 has no ``DataSourceStreamArrowWriter``; it looks for the one of batch jobs."""
    assert issubclass(MicroBatchWriter, DataSourceArrowWriter)
    assert issubclass(MicroBatchWriter, DataSourceStreamWriter)
