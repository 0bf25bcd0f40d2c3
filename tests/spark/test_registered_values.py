"""Values with a registered schema: the driver asks the registry once, tasks do not."""

from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession, types

from kprod.admin import read_topic
from kprod.errors import ConfigError
from kprod.schema import RegistryError, SchemaNotFoundError, SchemaRegistry
from kprod.spark import foreach_batch, partition_writer
from kprod.spark.data_source import stream_writer
from tests.spark.one_task import values
from tests.support.proto_messages import Order
from tests.support.schema_registry import FakeRegistry

SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]}],
}
AVRO: dict[str, Any] = {"value_format": "avro", "avro_schema": json.dumps(SALE)}
AS_IDS = types.StructType([types.StructField("id", types.LongType())])


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


def source(fake: FakeRegistry, subject: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": subject,
        "valueFormat": "avro",
        "subject": subject,
        "schemaRegistry": fake.url,
    }


def test_protobuf_rows_follow_their_registered_schema(kafka: str, fake: FakeRegistry) -> None:
    writer = partition_writer(
        "registered-protobuf",
        bootstrap_servers=kafka,
        value_format="protobuf",
        protobuf_message="tests.support.proto_messages:Order",
        subject="orders",
        schema_registry=SchemaRegistry(fake.url),
    )
    asked = len(fake.asked)
    rows = [{"id": 7, "buyer": {"name": "Ada"}}, {"id": 2**62, "buyer": None}]
    list(writer(iter([pa.RecordBatch.from_pylist(rows)])))
    assert len(fake.asked) == asked
    found = values(kafka, "registered-protobuf")
    assert {value[:7] for value in found} == {b"\0\0\0\0\2\2\2"}
    orders = sorted((Order.FromString(value[7:]) for value in found), key=lambda order: order.id)
    assert [(order.id, order.buyer.name) for order in orders] == [(7, "Ada"), (2**62, "")]


def test_json_rows_that_violate_the_schema_are_dead_letters(kafka: str, fake: FakeRegistry) -> None:
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
    list(writer(iter([pa.RecordBatch.from_pydict({"id": [5, 6], "day": [day, day]})])))
    assert values(kafka, "registered-json") == [b'\0\0\0\0\1{"id":5,"day":"2026-01-02"}']
    ((_, dead),) = read_topic(kafka, "registered-json-dead")
    assert dict(dead.headers)["kprod.dlq.reason"] == b"SerializationError"


def test_the_default_subject_is_named_after_the_topic(kafka: str, fake: FakeRegistry) -> None:
    given: Any = {**AVRO, "bootstrap_servers": kafka, "schema_registry": fake.url}
    writer = partition_writer("named-after", **given)
    list(writer(iter([pa.RecordBatch.from_pylist([{"id": 7, "who": "Ada"}])])))
    number = SchemaRegistry(fake.url).latest("named-after-value").id
    assert values(kafka, "named-after") == [b"\0" + number.to_bytes(4, "big") + b"\x0e\x02\x06Ada"]
    with pytest.raises(ConfigError, match="rows with a topic column need a subject"):
        partition_writer(**given)


def test_errors_of_the_registry_are_raised_on_the_driver(fake: FakeRegistry) -> None:
    given: Any = {"bootstrap_servers": "broker:9092", "subject": "s", "schema_registry": fake.url}
    with pytest.raises(SchemaNotFoundError):
        partition_writer("t", **given, value_format="avro")
    with pytest.raises(ConfigError, match=r"expected package\.module:Class"):
        partition_writer("t", **given, value_format="protobuf", protobuf_message="nowhere:Order")


def test_a_stream_keeps_its_first_schema(fake: FakeRegistry) -> None:
    """Spark makes a writer for each micro-batch."""
    fake.register("stream", {"schema": json.dumps(SALE)})
    first = stream_writer(source(fake, "stream"), AS_IDS)
    asked = len(fake.asked)
    newer = {**SALE, "fields": [*SALE["fields"], {"name": "x", "type": "long", "default": 0}]}
    fake.register("stream", {"schema": json.dumps(newer)})
    second = stream_writer(source(fake, "stream"), AS_IDS)
    assert len(fake.asked) == asked
    assert second._task.writer.plan.value == first._task.writer.plan.value


def test_a_micro_batch_is_committed_without_the_registry(fake: FakeRegistry) -> None:
    """Spark makes another writer to commit, in another process."""
    writer = stream_writer(source(fake, "gone"), AS_IDS)
    writer.commit([], 0)
    with pytest.raises(RegistryError):
        pickle.dumps(writer)


def test_foreach_batch_asks_the_registry_once(
    cluster: SparkSession, kafka: str, fake: FakeRegistry
) -> None:
    writes = foreach_batch("each-batch", bootstrap_servers=kafka, schema_registry=fake.url, **AVRO)
    asked = len(fake.asked)
    assert asked > 0
    shipped = pickle.loads(cloudpickle.dumps(writes))  # type: ignore[no-untyped-call]
    rows = cluster.range(0, 3, 1, 1).selectExpr("id", "'Ada' as who")
    writes(rows, 0)
    shipped(rows, 1)
    assert len(fake.asked) == asked
    expected = [b"\0\0\0\0\1" + bytes([2 * number]) + b"\x02\x06Ada" for number in range(3)]
    assert values(kafka, "each-batch") == sorted(expected * 2)
