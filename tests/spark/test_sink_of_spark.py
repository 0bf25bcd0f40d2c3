"""What Apache Spark's tests of its Kafka sink expect (``KafkaSinkSuite``), of ``format("kprod")``.

The batch tests are those that Spark runs for both versions of its data sources, the streaming ones
those of micro-batches. Three have no counterpart: Spark runs no Python sink in continuous mode,
counts no rows of one in ``StreamingQueryProgress``, and ``kafka.partitioner.class`` names a class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct, to_json
from pyspark.sql.streaming.query import StreamingQuery

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(600)

HEADERS = "topic string, value string, headers array<struct<key: string, value: binary>>"
INVALID = [
    (["value as key", "value"], "no topic"),
    (["'t' as topic", "value as key"], "no column 'value'"),
    (["cast('1' as int) as topic", "value"], "topic: column 'topic' must be a string"),
    (["'t' as topic", "cast(value as int) as value"], "value: column 'value' must be string or"),
    (["'t' as topic", "cast(value as int) as key", "value"], "key: column 'key' must be string or"),
    (["'t' as topic", "value", "value as partition"], "partition: .* an integer, not string"),
]
UNSUPPORTED = [
    ("kafka.key.serializer", "kafka.key.serializer is not supported"),
    ("kafka.value.serializer", "kafka.value.serializer is not supported"),
]


@pytest.fixture(scope="module")
def existing_topics_only() -> Iterator[str]:
    with EmbeddedBroker(topics={"there": 1}, auto_create_topics=False) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def stream(cluster: SparkSession, tmp_path: Path) -> Stream:
    return Stream(cluster, tmp_path)


class Stream:
    """A query that writes lines of text; each call of ``add`` is a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder = folder
        (folder / "in").mkdir()
        self._lines = spark.readStream.text(str(folder / "in"))

    def add(self, *lines: str) -> None:
        written = self._folder / f"{lines[0]}.txt"
        written.write_text("".join(f"{line}\n" for line in lines))
        written.rename(self._folder / "in" / written.name)

    def start(self, kafka: str, *columns: str, **options: str) -> StreamingQuery:
        writer = self._lines.selectExpr(*columns or ("*",)).writeStream.format("kprod")
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        return writer.option("kafka.bootstrap.servers", kafka).options(**options).start()


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
    save(cluster.createDataFrame(rows, HEADERS), kafka, topic="sink-headers")
    found = {record.value: record.headers for _, record in read_topic(kafka, "sink-headers")}
    assert found == {value.encode(): tuple(given or ()) for _, value, given in rows}


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


def test_a_null_in_the_topic_column_fails_the_job(cluster: SparkSession, kafka: str) -> None:
    frame = cluster.createDataFrame([(None, "1")], "topic string, value string")
    with pytest.raises(Exception, match="has no topic"):
        save(frame, kafka)


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "errorifexists"])
def test_the_only_save_mode_is_append(cluster: SparkSession, kafka: str, mode: str) -> None:
    frame = cluster.sql("select 'v' value")
    with pytest.raises(Exception, match=f"(?i)cannot be overwritten|{mode}"):
        save(frame, kafka, mode, topic="sink-modes")


def test_a_plan_that_was_not_analyzed_is_written(cluster: SparkSession, kafka: str) -> None:
    frame = cluster.range(1, 1_000).select(to_json(struct("*")).alias("value"))
    save(frame, kafka, topic="sink-plan")
    assert values(kafka, "sink-plan").total() == 999


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
    stream: Stream, kafka: str, columns: tuple[str, ...], options: dict[str, str]
) -> None:
    """The option wins over the column."""
    topic = options.get("topic", "sink-field")
    stream.add(*"12345")
    query = stream.start(kafka, *columns, **options)
    try:
        query.processAllAvailable()
        assert values(kafka, topic) == Counter(map(str.encode, "12345"))
        stream.add(*"6789")
        query.processAllAvailable()
        assert values(kafka, topic) == Counter(map(str.encode, "123456789"))
    finally:
        query.stop()


@pytest.mark.parametrize(("columns", "complaint"), INVALID)
def test_a_batch_with_an_invalid_schema_fails(
    cluster: SparkSession, columns: list[str], complaint: str
) -> None:
    frame = cluster.sql("select '1' value").selectExpr(*columns)
    with pytest.raises(Exception, match=complaint):
        save(frame, "127.0.0.1:1")


@pytest.mark.parametrize(("columns", "complaint"), INVALID)
def test_a_stream_with_an_invalid_schema_fails(
    stream: Stream, columns: list[str], complaint: str
) -> None:
    fails(lambda: stream.start("127.0.0.1:1", *columns), stream, complaint)


@pytest.mark.parametrize(("option", "complaint"), UNSUPPORTED)
def test_serializers_of_the_jvm_are_refused(
    cluster: SparkSession, stream: Stream, option: str, complaint: str
) -> None:
    options = {"topic": "t", option: "foo"}
    with pytest.raises(Exception, match=complaint):
        save(cluster.sql("select '1' value"), "127.0.0.1:1", **options)
    fails(lambda: stream.start("127.0.0.1:1", **options), stream, complaint)


def test_a_topic_that_does_not_exist_fails_the_job(
    cluster: SparkSession, stream: Stream, existing_topics_only: str
) -> None:
    options = {"topic": "missing", "kafka.max.block.ms": "1500"}
    with pytest.raises(Exception, match="missing"):
        save(cluster.sql("select '1' value"), existing_topics_only, **options)
    fails(lambda: stream.start(existing_topics_only, **options), stream, "missing")


def fails(start: Callable[[], StreamingQuery], stream: Stream, complaint: str) -> None:
    """Spark may say so when the query starts, or when it plans its first micro-batch."""
    stream.add("1")
    with pytest.raises(Exception, match=complaint):
        start().processAllAvailable()
