"""What Apache Spark's tests of its Kafka sink expect (``KafkaSinkSuite``), of ``format("kprod")``.

The batch tests are those that Spark runs for both versions of its data sources, the streaming ones
those of micro-batches. Three have no counterpart: Spark runs no Python sink in continuous mode,
counts no rows of one in ``StreamingQueryProgress``, and ``kafka.partitioner.class`` names a class.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kprod.admin import read_topic
from tests.spark.lines import Lines

pytestmark = pytest.mark.timeout(600)

HEADERS = "topic string, value string, headers array<struct<key: string, value: binary>>"
NOT_STREAMED: list[tuple[list[str], dict[str, str], str]] = [
    (["value"], {}, "no topic"),
    (["value as key"], {"topic": "t"}, "no column 'value'"),
    (["cast('1' as int) as topic", "value"], {}, "topic: column 'topic' must be a string"),
    (["value"], {"topic": "t", "kafka.key.serializer": "foo"}, "serializer is not supported"),
    (["value"], {"topic": "missing", "kafka.max.block.ms": "1500"}, "missing"),
]


BROKER = {"topics": {"there": 1}, "auto_create_topics": False}


def start(lines: Lines, kafka: str, *columns: str, **options: str) -> StreamingQuery:
    """A query that writes the lines."""
    writer = lines.stream().selectExpr(*columns or ("*",)).writeStream.format("kprod")
    writer = writer.option("checkpointLocation", str(lines.folder.parent / "checkpoint"))
    return writer.option("kafka.bootstrap.servers", kafka).options(**options).start()


@pytest.fixture
def lines(cluster: SparkSession, tmp_path: Path) -> Lines:
    return Lines(cluster, tmp_path)


def save(frame: DataFrame, kafka: str, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("kprod").option("kafka.bootstrap.servers", kafka)
    writer.options(**options).mode(mode).save()


def values(kafka: str, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for _, record in read_topic(kafka, topic))


def partitions(kafka: str, topic: str) -> dict[bytes | None, int]:
    return {record.value: partition for partition, record in read_topic(kafka, topic)}


def test_a_batch_is_written_with_its_headers(cluster: SparkSession, kafka: str) -> None:
    headers = [
        [("a", b"b")],
        [("c", b"d"), ("e", b"f")],
        [("g", b"h"), ("g", b"i")],
        None,
        [("j", b"k"), ("j", b"l"), ("m", b"n")],
    ]
    rows = [("sink-headers", str(number), given) for number, given in enumerate(headers)]
    frame = cluster.createDataFrame(rows, HEADERS).selectExpr("*", "timestamp_millis(17) timestamp")
    save(frame, kafka, topic="sink-headers")
    found = [record for _, record in read_topic(kafka, "sink-headers")]
    assert {record.value: record.headers for record in found} == {
        value.encode(): tuple(given or ()) for _, value, given in rows
    }
    assert {record.timestamp for record in found} == {17}


def test_the_partition_column_wins_and_a_null_is_ignored(cluster: SparkSession, kafka: str) -> None:
    frame = cluster.range(5).selectExpr("cast(id as string) key", "cast(id as string) value")
    save(frame, kafka, topic="sink-by-key")
    save(frame, kafka, topic="sink-crc32", **{"kafka.partitioner": "crc32"})
    two = frame.selectExpr("*", "2 as partition")
    save(two, kafka, topic="sink-two", **{"kafka.partitioner": "crc32"})
    save(frame.selectExpr("*", "cast(null as int) as partition"), kafka, topic="sink-null")
    by_key = partitions(kafka, "sink-by-key")
    assert len(set(by_key.values())) > 1
    assert partitions(kafka, "sink-crc32") != by_key
    assert set(partitions(kafka, "sink-two").values()) == {2}
    assert partitions(kafka, "sink-null") == by_key


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "errorifexists"])
def test_the_only_save_mode_is_append(cluster: SparkSession, kafka: str, mode: str) -> None:
    frame = cluster.sql("select 'v' value")
    with pytest.raises(Exception, match=f"(?i)cannot be overwritten|{mode}"):
        save(frame, kafka, mode, topic="sink-modes")


def test_rows_larger_than_the_buffer_together_wait_for_room(
    cluster: SparkSession, kafka: str
) -> None:
    frame = cluster.range(0, 1_000, 1, 1).selectExpr("cast(repeat('x', 15000) as binary) value")
    save(frame, kafka, topic="sink-buffer", **{"kafka.buffer.memory": "131072"})
    assert values(kafka, "sink-buffer") == {b"x" * 15_000: 1_000}


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (("'sink-field' as topic", "value"), {}),
        (("value",), {"topic": "sink-option"}),
        (("'foo' as topic", "value"), {"topic": "sink-both"}),
    ],
    ids=["field", "option", "both"],
)
def test_a_stream_writes_to_its_topic(
    lines: Lines, kafka: str, columns: tuple[str, ...], options: dict[str, str]
) -> None:
    """The option wins over the column."""
    topic = options.get("topic", "sink-field")
    lines.add(5)
    query = start(lines, kafka, *columns, **options)
    try:
        for rows in (5, 9):
            query.processAllAvailable()
            assert values(kafka, topic) == Counter(b"row %d" % row for row in range(rows))
            lines.add(4)
    finally:
        query.stop()


@pytest.mark.parametrize(("columns", "options", "complaint"), NOT_STREAMED)
def test_a_stream_says_what_is_wrong_with_it(
    lines: Lines, bootstrap: str, columns: list[str], options: dict[str, str], complaint: str
) -> None:
    """Spark may say so when the query starts, or when it plans its first micro-batch."""
    lines.add(1)
    with pytest.raises(Exception, match=complaint):
        start(lines, bootstrap, *columns, **options).processAllAvailable()
