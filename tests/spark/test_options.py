"""Options are checked on the driver; batch sizes that they and Spark's settings give."""

from __future__ import annotations

import threading
from math import inf, nan
from typing import Any

import pytest

from kprod.cli.spark_pipeline import Pipeline
from kprod.errors import ConfigError, InvalidTopicError, RecordTypeError
from kprod.spark import foreach_batch, partition_writer
from kprod.spark.data_source import source_writer
from kprod.spark.options import config_of, job_options, with_large_batches
from kprod.spark.partition_writer import task_writer
from kprod.spark.spark_job import ARROW_BYTES, ARROW_ROWS, UNCHECKED, UNIX_SOCKETS, faster_settings
from tests.support.steady_names import steady_repr

BROKERS: Any = {"bootstrap_servers": "127.0.0.1:9092"}
ONCE = {"delivery": "exactly_once"}
REPARTITION = {"repartition": "kafka"}
LETTERS = {"on_row_error": "dead_letter"}
LOCK = threading.Lock()

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"lingr_ms": 5}, "did you mean 'linger_ms'"),
    ({"on_row_eror": "skip"}, "did you mean 'on_row_error'"),
    ({"max_record_per_second": 5}, "did you mean 'max_records_per_second'"),
    ({"acks": 2}, "acks: expected"),
    ({"linger_ms": -1}, "linger_ms"),
    ({"transactional_id": "mine"}, "transactional_id: tasks of one job"),
    ({"value_serializer": lambda _: LOCK}, "'value_serializer'.* cannot be sent to the executors"),
    *(({"timeout": wrong}, "timeout: expected seconds") for wrong in (-1, nan, inf, "30", True)),
    ({"max_bytes_per_second": "1000"}, "max_bytes_per_second: must be more than 0"),
    *(
        ({"max_records_per_second": wrong}, "max_records_per_second: must be more than 0")
        for wrong in (0, -1, nan, True)
    ),
    ({"results": "rows"}, "results: expected"),
    ({"columns": {"colour": "c"}}, "expected parts of a record.*'colour'"),
    ({"on_row_error": "ignore"}, "on_row_error: expected one of"),
    *(
        ({"on_row_error": "skip", "max_row_errors": wrong}, "max_row_errors: expected a whole")
        for wrong in (-1, "10", True, 0.5)
    ),
    (LETTERS, "require each other"),
    ({"dead_letter_topic": "d"}, "require each other"),
    ({**LETTERS, "dead_letter_topic": "dead letters"}, "'dead letters' is not a valid topic name"),
    ({**LETTERS, "dead_letter_topic": ""}, "dead_letter_topic: ''"),
    (
        {**LETTERS, "dead_letter_topic": "d", "dead.letter.topic": "d"},
        "dead_letter_topic is set twice",
    ),
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
    (
        {"value_format": "json", "value.serializer": str.encode},
        "value_format and value_serializer cannot be combined",
    ),
    (
        {"key_format": "json", "key_serializer": str.encode},
        "key_format and key_serializer cannot be combined",
    ),
    ({"repartition": "hash"}, "repartition: expected"),
    ({**REPARTITION, "partitioner": "crc32"}, 'repartition="kafka".*partitioner'),
    ({**REPARTITION, "partitioner": max}, 'repartition="kafka".*partitioner'),
    ({**REPARTITION, "partitioner_ignore_keys": True}, 'repartition="kafka".*partitioner'),
    ({"delivery": "atmic"}, 'delivery: expected one of "at_least_once", "exactly_once"'),
    *(
        ({name: "mine"}, 'are for delivery="exactly_once" and "atomic"')
        for name in ("job_id", "marker_topic", "transaction_prefix")
    ),
    ({"shards": 4}, 'shards is for delivery="exactly_once"'),
    ({**ONCE, "shards": 0}, "shards: expected"),
    ({**ONCE, "shards": 4, **REPARTITION}, "shards and repartition cannot be combined"),
    ({**ONCE, "shard_by": "key"}, "shard_by needs shards"),
]


@pytest.mark.parametrize(("options", "complaint"), REFUSED, ids=steady_repr)
def test_invalid_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        foreach_batch("t", **BROKERS, **options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"output": "rows"}, 'expected "report" or "none"'),
        ({"delivery": "atomic"}, "partition_writer runs in tasks only"),
        ({"acks": 2}, "acks: expected"),
    ],
)
def test_invalid_options_of_partition_writer_are_refused(options: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        partition_writer("t", **BROKERS, **options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"kafka.acks": "5"}, "acks"),
        ({"kafka.key.serializer": "foo"}, "kafka.key.serializer is not supported"),
        ({"kafka.value_serializer": "str"}, "kafka.value_serializer is not supported"),
        ({"kafka.transactional.id": "mine"}, "transactional_id: tasks of one job"),
        ({"timeout": "soon"}, "timeout: expected a number of seconds"),
        ({"maxRecordsPerSecond": "5"}, "kprod.spark.write"),
        ({"shards": "3"}, "a data source cannot move rows"),
    ],
)
def test_invalid_data_source_options_are_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        source_writer({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t", **options})


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "read one of path, table and query; got none"),
        ({"path": "p", "table": "t"}, "got .'path', 'table'."),
        ({"path": "p", "stream": True}, "needs a checkpoint"),
        ({"path": "p", "stream": True, "checkpoint": "c", "master": "sc://h"}, "Spark Connect"),
        ({"query": "q", "options": {"on_row_eror": "skip"}}, "did you mean 'on_row_error'"),
        ({"query": "q", "options": {"compresion_type": "lz4"}}, "did you mean 'compression_type'"),
        ({"query": "q", "options": {"job_id": "night"}}, "job_id, marker_topic"),
        ({"query": "q", "options": LETTERS}, "dead_letter_topic"),
    ],
    ids=steady_repr,
)
def test_invalid_pipelines_are_refused_before_spark_starts(fields: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Pipeline(topic="t", **BROKERS, **fields)


@pytest.mark.parametrize(
    ("topic", "error"),
    [("device readings", InvalidTopicError), ("", InvalidTopicError), (7, RecordTypeError)],
)
def test_invalid_topics_are_refused(topic: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="topic"):
        partition_writer(topic, **BROKERS)
    with pytest.raises(ConfigError, match="marker_topic"):
        partition_writer(**BROKERS, delivery="exactly_once")


def test_bootstrap_servers_is_required_in_either_spelling() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers: the option is missing"):
        task_writer("t", client_id="c")  # type: ignore[call-arg]
    options: Any = {"bootstrap.servers": "127.0.0.1:9092"}
    assert task_writer("t", **options).producer.options["bootstrap.servers"] == "127.0.0.1:9092"


@pytest.mark.parametrize("name", ["dead_letter_topic", "dead.letter.topic"])
def test_dead_letter_topic_belongs_to_the_writer_in_every_spelling(name: str) -> None:
    source = {"topic": "t", "onRowError": "dead_letter", f"kafka.{name}": "dlq"}
    source["kafka.bootstrap.servers"] = "127.0.0.1:9092"
    given: Any = {**LETTERS, name: "dlq"}
    for writer in (task_writer("t", **BROKERS, **given), source_writer(source)):
        assert writer.producer.policy.dead_letter_topic == "dlq"
        assert name not in writer.producer.options


def test_a_batch_of_a_job_fills_a_whole_request() -> None:
    config = config_of(job_options(with_large_batches({"bootstrap_servers": "b:1"})))
    assert config.batch_size == config.batch_max_size == config.max_request_size == 1_048_576


@pytest.mark.parametrize(
    "size", ["batch_size", "batch.size", "batch_max_size", "max_request_size", "max.request.size"]
)
def test_a_given_size_is_not_changed(size: str) -> None:
    options = {size: 200_000}
    assert with_large_batches(options) == options


def test_a_profile_overrides_the_defaults_of_a_job() -> None:
    config = config_of(job_options(with_large_batches({"profile": "throughput"})))
    assert (config.batch_size, config.compression_type) == (131_072, "lz4")
    assert config_of(job_options({"profile": "latency"})).linger_ms == 0


ROWS = {ARROW_ROWS: "4000"}
BYTES = {ARROW_BYTES: UNCHECKED}
SOCKETS = {UNIX_SOCKETS: "true"}


@pytest.mark.parametrize(
    ("settings", "version", "records", "nbytes", "found"),
    [
        ({}, "4.3.0", 1_000_000, 1_000_000_000, ROWS | BYTES | SOCKETS),
        ({}, "4.0.1", 1_000_000, 1_000_000_000, ROWS | BYTES),
        ({}, "3.5.7", 1_000_000, 1_000_000_000, ROWS),
        ({ARROW_ROWS: "1000"}, "4.1.0", 1_000_000, 1_000_000_000, BYTES | SOCKETS),
        ({ARROW_ROWS: "0"}, "4.2.0", 1_000_000, 1_000_000_000, ROWS | BYTES | SOCKETS),
        ({ARROW_BYTES: "64m"}, "4.2.0", 1_000_000, 1_000_000_000, ROWS | SOCKETS),
        ({UNIX_SOCKETS: "false"}, "4.2.0", 1_000_000, 1_000_000_000, ROWS | BYTES),
        (ROWS | BYTES | SOCKETS, "4.2.0", 1_000_000, 1_000_000_000, {}),
        ({}, "4.3.0", 10_000_000, 1_000_000_000, {ARROW_ROWS: "40000"} | BYTES | SOCKETS),
        ({}, "4.3.0", 4_000_000, 1_000_000_000, BYTES | SOCKETS),
        ({ARROW_ROWS: "9000"}, "4.3.0", 10_000_000, 1_000_000_000, BYTES | SOCKETS),
        ({ARROW_ROWS: "-1"}, "4.3.0", 1_000_000, 1_000_000_000, ROWS | BYTES | SOCKETS),
        ({}, "4.3.0", 100, 1_000_000_000, {ARROW_ROWS: "1", **SOCKETS}),
        ({}, "4.3.0", 10_000, 10_000_000, {}),
        ({}, "4.3.0", 0, 0, {}),
    ],
)
def test_spark_settings_are_recommended_for_large_jobs_unless_set(
    settings: dict[str, str], version: str, records: int, nbytes: int, found: dict[str, str]
) -> None:
    assert faster_settings(settings.get, lambda: version, records, nbytes) == found
