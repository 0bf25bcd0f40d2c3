"""Orders in Avro with a schema registry, by Confluent's own serializers."""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import SerializingProducer
from confluent_kafka.error import ValueSerializationError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import StringSerializer

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}

noticed: list[Any] = []


def delivered(error: Any, message: Any) -> None:
    noticed.append([message.topic(), None if error is None else error.name()])


registry = SchemaRegistryClient({"url": sys.argv[2]})
producer = SerializingProducer(
    {
        "bootstrap.servers": sys.argv[1],
        "key.serializer": StringSerializer(),
        "value.serializer": AvroSerializer(registry, json.dumps(SCHEMA)),
    }
)
for order in ({"id": 1, "note": None}, {"id": 2, "note": "x"}, {"id": "three", "note": None}):
    try:
        producer.produce("orders", key=str(order["id"]), value=order, on_delivery=delivered)
    except ValueSerializationError as error:
        noticed.append([type(error).__name__, error.code])
producer.flush(30)
print(json.dumps(noticed))
