"""kprod.schema with Apicurio Registry, read by Confluent's deserializers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as ConfluentAvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kprod import KafkaProducer, confluent
from kprod.broker import EmbeddedBroker
from kprod.schema import (
    AvroSerializer,
    IncompatibleSchemaError,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from tests.support import apicurio
from tests.support.confluent_consumer import confluent_consumer
from tests.support.proto_messages import Customer, Order

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
}
VALUE = {"id": 7, "who": "Ada Lovelace"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with apicurio.running() as url:
        yield url


def received(broker: EmbeddedBroker, topic: str) -> Any:
    with closing(confluent_consumer(broker.bootstrap_servers, topic)) as consumer:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message


def sent(broker: EmbeddedBroker, topic: str, serializer: Any, value: Any) -> Any:
    """The stored message of a record with a header."""
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, value_serializer=serializer
    ) as producer:
        producer.send(topic, value, headers=[("mine", b"1")]).get(30)
    return received(broker, topic)


def read(deserializer: Any, message: Any) -> Any:
    headers = message.headers() or []
    context = SerializationContext(message.topic(), MessageField.VALUE, headers)
    return deserializer(message.value(), context)


IDS = {"schema.id.deserializer": dual_schema_id_deserializer}


@pytest.mark.parametrize("id_in", ["prefix", "header"])
def test_confluent_reads_our_avro(url: str, broker: EmbeddedBroker, id_in: Any) -> None:
    topic = f"avro-{id_in}"
    serializer = AvroSerializer(SchemaRegistry(url), ORDER, id_in=id_in)
    message = sent(broker, topic, serializer, VALUE)
    assert message.headers()[0] == ("mine", b"1")
    assert len(message.headers()) == (2 if id_in == "header" else 1)
    with SchemaRegistryClient({"url": url}) as registry_client:
        assert read(AvroDeserializer(registry_client, conf=IDS), message) == VALUE


def test_confluent_reads_our_json_schema(url: str, broker: EmbeddedBroker) -> None:
    # Imported here: jsonschema builds 38 parsers, which takes each worker a second.
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    schema = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
    serializer = JsonSchemaSerializer(SchemaRegistry(url), schema)
    message = sent(broker, "json", serializer, VALUE)
    deserializer = JSONDeserializer(json.dumps(schema), conf=IDS)
    assert read(deserializer, message) == VALUE


def test_confluent_reads_our_protobuf(url: str, broker: EmbeddedBroker) -> None:
    serializer = ProtobufSerializer(SchemaRegistry(url), Order)
    order = Order(id=7, buyer=Customer(name="Ada"))
    message = sent(broker, "proto", serializer, order)
    deserializer = ProtobufDeserializer(Order, {"use.deprecated.format": False, **IDS})
    assert read(deserializer, message) == order


def test_an_incompatible_schema_is_refused(url: str) -> None:
    import urllib.request

    registry = SchemaRegistry(url)
    AvroSerializer(registry, ORDER).serialize("strict", [], VALUE)
    rule = urllib.request.Request(
        f"{url}/config/strict-value",
        method="PUT",
        data=b'{"compatibility": "BACKWARD"}',
        headers={"content-type": "application/vnd.schemaregistry.v1+json"},
    )
    urllib.request.urlopen(rule).close()
    other = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(IncompatibleSchemaError, match=r"'strict-value'.*STRING.*LONG.*/fields/0"):
        AvroSerializer(SchemaRegistry(url), other).serialize("strict", [], {"id": "x"})


@pytest.mark.parametrize("theirs", [True, False])
def test_serializers_work_with_the_confluent_producer(
    url: str, broker: EmbeddedBroker, theirs: bool
) -> None:
    """Also with Confluent's own serializer."""
    topic = f"confluent-{theirs}"
    with SchemaRegistryClient({"url": url}) as registry_client:
        serializer: Any = (
            ConfluentAvroSerializer(registry_client, json.dumps(ORDER))
            if theirs
            else AvroSerializer(SchemaRegistry(url), ORDER)
        )
        producer = confluent.SerializingProducer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "key.serializer": AvroSerializer(SchemaRegistry(url), '"string"'),
                "value.serializer": serializer,
            }
        )
        producer.produce(topic, "k", VALUE)
        assert producer.flush(30) == 0
        producer.close()
        message = received(broker, topic)
        assert read(AvroDeserializer(registry_client), message) == VALUE
    assert SchemaRegistry(url).latest(f"{topic}-key").schema.text == '"string"'
    assert message.key()[5:] == b"\x02k"
