"""Values with a schema of a registry, which the driver asks once and the tasks do not need"""

from __future__ import annotations

import datetime
import io
import json
import pickle
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession, types

from kprod.admin import read_topic
from kprod.errors import ConfigError
from kprod.schema import RegistryError, SchemaNotFoundError, SchemaRegistry
from kprod.spark import foreach_batch, partition_writer, write
from kprod.spark.data_source import stream_writer
from tests.support.proto_messages import Order
from tests.support.schema_registry import FakeRegistry

SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]}],
}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


def values(kafka: str, topic: str) -> list[bytes]:
    return [record.value or b"" for _, record in read_topic(kafka, topic)]


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("surface", ["write", "format"])
def test_avro_of_a_cluster(
    cluster: SparkSession, kafka: str, fake: FakeRegistry, surface: str
) -> None:
    topic = f"registered-{surface}"
    rows = cluster.range(0, 1000, 1, 4).selectExpr("id", "concat('buyer ', id) as who")
    if surface == "write":
        result = write(
            rows,
            topic,
            bootstrap_servers=kafka,
            value_format="avro",
            avro_schema=json.dumps(SALE),
            subject="sales",
            schema_registry=fake.url,
        )
        assert result.records == 1000
    else:
        fake.register("sales", {"schema": json.dumps(SALE)})
        (
            rows.write.format("kprod")
            .mode("append")
            .option("kafka.bootstrap.servers", kafka)
            .option("topic", topic)
            .option("valueFormat", "avro")
            .option("subject", "sales")
            .option("schemaRegistry", fake.url)
            .save()
        )
    assert len(fake.asked) == 1
    found = values(kafka, topic)
    assert {value[:5] for value in found} == {b"\0\0\0\0\1"}
    read: list[Any] = [
        fastavro.schemaless_reader(io.BytesIO(value[5:]), SALE, None) for value in found
    ]
    assert sorted((row["id"], row["who"]) for row in read) == [
        (number, f"buyer {number}") for number in range(1000)
    ]


def test_protobuf(kafka: str, fake: FakeRegistry) -> None:
    writer = partition_writer(
        "registered-protobuf",
        bootstrap_servers=kafka,
        value_format="protobuf",
        protobuf_message="tests.support.proto_messages:Order",
        subject="orders",
        schema_registry=SchemaRegistry(fake.url),
        on_row_error="dead_letter",
        dead_letter_topic="registered-protobuf-dead",
    )
    asked = len(fake.asked)
    rows = pa.RecordBatch.from_pylist(
        [{"id": 7, "buyer": {"name": "Ada"}}, {"id": 2**62, "buyer": None}]
    )
    list(writer(iter([rows])))
    assert len(fake.asked) == asked
    found = values(kafka, "registered-protobuf")
    assert {value[:7] for value in found} == {b"\0\0\0\0\2\2\2"}
    orders = sorted((Order.FromString(value[7:]) for value in found), key=lambda order: order.id)
    assert [(order.id, order.buyer.name) for order in orders] == [(7, "Ada"), (2**62, "")]


def test_json_schema(kafka: str, fake: FakeRegistry) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 5}}}
    writer = partition_writer(
        "registered-json",
        bootstrap_servers=kafka,
        value_format="json_schema",
        json_schema=json.dumps(schema),
        subject="days",
        schema_registry=fake.url,
        on_row_error="dead_letter",
        dead_letter_topic="registered-json-dead",
    )
    day = datetime.date(2026, 1, 2)
    rows = pa.RecordBatch.from_pydict({"id": [5, 6], "day": [day, day]})
    list(writer(iter([rows])))
    assert values(kafka, "registered-json") == [b'\0\0\0\0\1{"id":5,"day":"2026-01-02"}']
    ((_, dead),) = read_topic(kafka, "registered-json-dead")
    assert dict(dead.headers)["kprod.dlq.reason"] == b"SerializationError"


def test_the_subject_is_named_after_the_topic(kafka: str, fake: FakeRegistry) -> None:
    given: Any = {
        "bootstrap_servers": kafka,
        "value_format": "avro",
        "avro_schema": json.dumps(SALE),
        "schema_registry": fake.url,
    }
    writer = partition_writer("named-after", **given)
    list(writer(iter([pa.RecordBatch.from_pylist([{"id": 7, "who": "Ada"}])])))
    (value,) = values(kafka, "named-after")
    assert value[0] == 0
    latest = SchemaRegistry(fake.url).latest("named-after-value")
    assert int.from_bytes(value[1:5], "big") == latest.id
    with pytest.raises(ConfigError, match="rows with a topic column need a subject"):
        partition_writer(**given)
    with pytest.raises(ConfigError, match="subject requires schema_registry"):
        partition_writer("t", **{**given, "subject": "s", "schema_registry": None})


def test_what_the_registry_refuses_is_told_on_the_driver(fake: FakeRegistry) -> None:
    options: Any = {"bootstrap_servers": "broker:9092", "value_format": "avro"}
    with pytest.raises(SchemaNotFoundError):
        partition_writer("t", subject="none", schema_registry=fake.url, **options)
    with pytest.raises(ConfigError, match=r"expected package\.module:Class"):
        partition_writer(
            "t",
            bootstrap_servers="broker:9092",
            value_format="protobuf",
            protobuf_message="nowhere:Order",
            subject="s",
            schema_registry=fake.url,
        )


def test_a_stream_keeps_the_schema_that_it_began_with(fake: FakeRegistry) -> None:
    """Spark makes a writer for each micro-batch; the registry may be away by then, or newer."""
    fake.register("events", {"schema": json.dumps(SALE)})
    options = {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": "kept",
        "valueFormat": "avro",
        "subject": "events",
        "schemaRegistry": fake.url,
    }
    schema = types.StructType([types.StructField("id", types.LongType())])
    first = stream_writer(options, schema)
    asked = len(fake.asked)
    newer = {**SALE, "fields": [*SALE["fields"], {"name": "x", "type": "long", "default": 0}]}
    fake.register("events", {"schema": json.dumps(newer)})
    second = stream_writer(options, schema)
    assert len(fake.asked) == asked
    assert second._task.writer.plan.value == first._task.writer.plan.value


def test_a_micro_batch_is_committed_though_the_registry_has_no_schema(fake: FakeRegistry) -> None:
    """Spark makes another writer to commit, in another process: the schema may be away by then."""
    options = {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": "away",
        "valueFormat": "avro",
        "subject": "gone",
        "schema_registry": fake.url,
    }
    writer = stream_writer(options, types.StructType([types.StructField("id", types.LongType())]))
    writer.commit([], 0)
    with pytest.raises(RegistryError):
        pickle.dumps(writer)


def test_foreach_batch_asks_when_it_is_called(
    cluster: SparkSession, kafka: str, fake: FakeRegistry
) -> None:
    writes = foreach_batch(
        "each-batch",
        bootstrap_servers=kafka,
        value_format="avro",
        avro_schema=json.dumps(SALE),
        schema_registry=fake.url,
    )
    asked = len(fake.asked)
    assert asked > 0
    shipped = pickle.loads(cloudpickle.dumps(writes))  # type: ignore[no-untyped-call]
    rows = cluster.range(0, 3, 1, 1).selectExpr("id", "'Ada' as who")
    writes(rows, 0)
    shipped(rows, 1)
    assert len(fake.asked) == asked
    assert len(values(kafka, "each-batch")) == 6


@pytest.mark.parametrize(
    "options",
    [
        {"linger_ms": -1},
        {"value_format": "xml"},
        {"repartition": "hash"},
        {"repartition": "kafka", "partitioner": "crc32"},
        {"results": "rows"},
        {"max_records_per_second": 0},
        {"shards": 4},
        {"shards": 0, "delivery": "exactly_once"},
        {"shards": 4, "delivery": "exactly_once", "repartition": "kafka"},
        {"shard_by": "key", "delivery": "exactly_once"},
    ],
    ids=str,
)
def test_foreach_batch_judges_its_options_when_it_is_called(options: Any) -> None:
    with pytest.raises(ConfigError):
        foreach_batch("t", bootstrap_servers="broker:9092", **options)
