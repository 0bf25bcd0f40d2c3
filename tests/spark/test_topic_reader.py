"""Reading a topic: offsets, headers, isolation and options."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.broker.log.log_config import NO_LIMIT, LogConfig
from kprod.errors import ConfigError
from kprod.spark.topic_reader import TopicReader, read_options
from pyspark_kprod import DefaultSource

STAMP = 1_700_000_000_123
BROKERS = {"kafka.bootstrap.servers": "h:1"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Two partitions of ``read``: committed records, aborted ones, committed ones, an open one."""
    with EmbeddedBroker(topics={"read": 2, "empty": 1}) as broker:
        servers = broker.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers, transactional_id="writes") as producer:
            send(producer, "first")
            with suppress(ZeroDivisionError), producer.transaction():
                for number in (0, 1):
                    producer.send("read", b"aborted", partition=number)
                producer.flush()
                raise ZeroDivisionError
            send(producer, "last")
            producer.begin_transaction()
            producer.send("read", b"open", partition=1)
            producer.flush()
            yield servers


def send(producer: KafkaProducer, text: str) -> None:
    with producer.transaction():
        for number in (0, 1):
            producer.send(
                "read",
                b"%s %d" % (text.encode(), number),
                key=b"k",
                headers=[("h", b"v")],
                partition=number,
                timestamp_ms=STAMP,
            )


def rows(servers: str, **options: str) -> list[tuple[Any, ...]]:
    of = {} if "topic" in options else {"subscribe": "read", "includeHeaders": "true"}
    given = {"kafka.bootstrap.servers": servers, **of, **options}
    reader = TopicReader(read_options(given))
    return [row for span in reader.partitions() for row in reader.read(span)]


def test_committed_records_are_read_with_all_columns(servers: str) -> None:
    found = rows(servers)
    assert [row[1] for row in found] == [b"first 0", b"last 0", b"first 1", b"last 1"]
    key, value, topic, partition, offset, moment, headers = found[0]
    assert (key, value, topic, partition, offset) == (b"k", b"first 0", "read", 0, 0)
    assert moment == datetime.datetime.fromtimestamp(STAMP / 1000, tz=datetime.UTC)
    assert [(one.key, one.value) for one in headers] == [("h", b"v")]


def test_a_timestamp_beyond_the_year_9999_is_null() -> None:
    """Such as microseconds taken for milliseconds."""
    log = LogConfig(message_timestamp_after_max_ms=NO_LIMIT)
    with EmbeddedBroker(topics={"read": 1}, log_config=log) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for stamp in (STAMP * 1000, 253_402_300_799_999):
                producer.send("read", b"v", timestamp_ms=stamp)
        moments = [row[5] for row in rows(broker.bootstrap_servers)]
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
    assert moments == [None, last]


def test_read_uncommitted_reads_aborted_and_open_records(servers: str) -> None:
    for name in ("isolation", "kafka.isolation.level"):
        found = [row[1] for row in rows(servers, **{name: "read_uncommitted"})]
        assert (found.count(b"aborted"), found[-1]) == (2, b"open")


def test_starting_and_ending_offsets_limit_the_records(servers: str) -> None:
    assert rows(servers, startingOffsets="latest") == []
    some = {"startingOffsets": '{"read": {"0": 1, "1": -1}}', "endingOffsets": '{"0": 5, "1": -1}'}
    assert [row[1] for row in rows(servers, **some)] == [b"last 0"]
    assert [row[1] for row in rows(servers, endingOffsets='{"0": 1, "1": -2}')] == [b"first 0"]
    assert rows(servers, topic="empty") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t"}, "kafka.bootstrap.servers: the option is missing"),
        (BROKERS, "topic: the option is missing"),
        ({**BROKERS, "topic": "t", "delivery": "atomic"}, "unknown option"),
        ({**BROKERS, "topic": "t", "isolation": "none"}, "expected one of .*read_committed"),
        ({**BROKERS, "topic": "t", "startingOffsets": "now"}, "startingOffsets: expected"),
        ({**BROKERS, "topic": "t", "failOnDataLoss": "0"}, "failOnDataLoss: expected one of"),
    ],
)
def test_invalid_read_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options(options)


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize("offsets", ['{"0": 1}', '{"read": {"1": -1}}', '{"0": 1, "1": 1, "2": 1}'])
def test_offsets_must_name_exactly_the_partitions(servers: str, name: str, offsets: str) -> None:
    """As in Spark's own source."""
    with pytest.raises(ConfigError, match=rf"{name}: 'read' has the partitions \[0, 1\]"):
        rows(servers, **{name: offsets})


def test_missing_offsets_are_an_error_unless_data_loss_is_accepted() -> None:
    with EmbeddedBroker(topics={"read": 1}) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send("read", b"%d" % number)
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        (gone,) = admin.delete_records([Place("read", 0, 2)]).values()
        gone.result(20)
        for name, offset in (("startingOffsets", 1), ("startingOffsets", 6), ("endingOffsets", 6)):
            asked = {name: f'{{"0": {offset}}}'}
            with pytest.raises(ConfigError, match="read-0 has offsets from 2 to 5"):
                rows(servers, **asked)
            found = [row[4] for row in rows(servers, **asked, failOnDataLoss="False")]
            assert found == ([] if asked == {"startingOffsets": '{"0": 6}'} else [2, 3, 4])
        backwards = {"startingOffsets": '{"0": 4}', "endingOffsets": '{"0": 3}'}
        for asked in (backwards, {"endingOffsets": '{"0": 1}'}):  # the second begins at 2
            with pytest.raises(ConfigError, match="read-0 has offsets from 2 to 5"):
                rows(servers, **asked)
        assert [row[4] for row in rows(servers, startingOffsets='{"0": 2}')] == [2, 3, 4]
        assert rows(servers, startingOffsets='{"0": 5}', endingOffsets='{"0": 5}') == []


def test_streaming_reads_refer_to_sparks_kafka_source() -> None:
    source = DefaultSource({})
    with pytest.raises(ConfigError, match=r'use Spark\'s own source, format\("kafka"\)'):
        source.streamReader(source.schema())  # type: ignore[arg-type]


@pytest.mark.timeout(600)
def test_a_frame_is_written_and_read_back(cluster: SparkSession, kafka: str) -> None:
    frame = cluster.range(0, 100, 1, 3).selectExpr(
        "cast(id as string) as key", "concat('row ', id) as value"
    )
    options = {"kafka.bootstrap.servers": kafka, "topic": "read-back"}
    frame.write.format("kprod").options(**options).mode("append").save()
    found = cluster.read.format("kprod").options(**options).load()
    assert (
        found.selectExpr("cast(key as string)", "cast(value as string)").exceptAll(frame).isEmpty()
    )
    assert found.count() == 100
    assert found.select("partition").distinct().count() == 3
