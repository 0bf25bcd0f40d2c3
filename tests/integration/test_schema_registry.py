"""kprod.schema against Apicurio Registry, through every face, read by Confluent's deserializers"""

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
    """The message of a record that has a header already."""
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
def test_avro_is_what_confluent_reads(url: str, broker: EmbeddedBroker, id_in: Any) -> None:
    topic = f"avro-{id_in}"
    serializer = AvroSerializer(SchemaRegistry(url), ORDER, id_in=id_in)
    message = sent(broker, topic, serializer, VALUE)
    assert message.headers()[0] == ("mine", b"1")
    assert len(message.headers()) == (2 if id_in == "header" else 1)
    with SchemaRegistryClient({"url": url}) as known:
        assert read(AvroDeserializer(known, conf=IDS), message) == VALUE


def test_json_schema_is_what_confluent_reads(url: str, broker: EmbeddedBroker) -> None:
    # Here, not above: jsonschema then makes 38 parsers, for a second that each worker would take.
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    schema = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
    serializer = JsonSchemaSerializer(SchemaRegistry(url), schema)
    message = sent(broker, "json", serializer, VALUE)
    judge = JSONDeserializer(json.dumps(schema), conf=IDS)
    assert read(judge, message) == VALUE


def test_protobuf_is_what_confluent_reads(url: str, broker: EmbeddedBroker) -> None:
    serializer = ProtobufSerializer(SchemaRegistry(url), Order)
    order = Order(id=7, buyer=Customer(name="Ada"))
    message = sent(broker, "proto", serializer, order)
    judge = ProtobufDeserializer(Order, {"use.deprecated.format": False, **IDS})
    assert read(judge, message) == order


def test_a_change_that_readers_could_not_bear_is_refused(url: str) -> None:
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
def test_through_the_face_of_confluent(url: str, broker: EmbeddedBroker, theirs: bool) -> None:
    """With Confluent's own serializer, too."""
    topic = f"confluent-{theirs}"
    with SchemaRegistryClient({"url": url}) as known:
        serializer: Any = (
            ConfluentAvroSerializer(known, json.dumps(ORDER))
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
        assert read(AvroDeserializer(known), message) == VALUE
    assert SchemaRegistry(url).latest(f"{topic}-key").schema.text == '"string"'
    assert message.key()[5:] == b"\x02k"
