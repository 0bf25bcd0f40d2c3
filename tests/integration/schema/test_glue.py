"""Records for AWS Glue's registry, read by its own package. Glue itself is a fake."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.errors import ConfigError
from kprod.intake.serializers import WouldWait
from kprod.schema import RegistryError
from kprod.schema.glue import GlueSerializer

pytest.importorskip("aws_schema_registry", reason="not installed for this Python: see pyproject")

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


class Glue:
    """The four calls of boto3's client that the package makes."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []

    def get_schema_by_definition(self, SchemaId: Any, SchemaDefinition: str) -> Any:
        self.asked.append(SchemaId["SchemaName"])
        wanted = (f"arn/{SchemaId['SchemaName']}", SchemaDefinition)
        for found in self.versions.values():
            if (found["SchemaArn"], found["SchemaDefinition"]) == wanted:
                return found
        raise LookupError("Schema is not found.")

    def create_schema(self, **asked: Any) -> Any:
        if asked["SchemaName"].startswith("forbidden"):
            raise PermissionError("AccessDeniedException")
        number = str(UUID(int=len(self.versions) + 1))
        self.versions[number] = {
            "SchemaVersionId": number,
            "SchemaVersionStatus": "AVAILABLE",
            "SchemaArn": f"arn/{asked['SchemaName']}",
            "SchemaDefinition": asked["SchemaDefinition"],
            "DataFormat": asked["DataFormat"],
            "Status": "AVAILABLE",
            "VersionNumber": 1,
        }
        return self.versions[number]

    def get_schema_version(self, SchemaVersionId: str) -> Any:
        return self.versions[SchemaVersionId]


def client(glue: Glue) -> Any:
    from aws_schema_registry import SchemaRegistryClient

    return SchemaRegistryClient(glue, registry_name="shop", wait_interval_seconds=0)


def serializer(glue: Glue, **options: Any) -> GlueSerializer:
    from aws_schema_registry.avro import AvroSchema

    return GlueSerializer(client(glue), AvroSchema(json.dumps(ORDER)), **options)


def test_the_glue_deserializer_reads_the_records() -> None:
    from aws_schema_registry import KafkaDeserializer

    glue = Glue()
    with (
        EmbeddedBroker(topics={"orders": 1}) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            key_serializer=serializer(glue, is_key=True),
            value_serializer=serializer(glue),
        ) as producer,
    ):
        for number in (7, 8):
            producer.send("orders", {"id": number}, key={"id": 1}).get(30)
        first, second = broker.records("orders")
    assert glue.asked == ["orders-key", "orders-value"]
    deserializer = KafkaDeserializer(client(glue))
    assert deserializer.deserialize("orders", first.value).data == {"id": 7}
    assert deserializer.deserialize("orders", second.value).data == {"id": 8}
    assert deserializer.deserialize("orders", second.key).data == {"id": 1}


def test_in_an_event_loop_requests_do_not_block() -> None:
    glue = Glue()
    made = serializer(glue).without_waiting()
    with pytest.raises(WouldWait) as raised:
        made.serialize("orders", [], {"id": 7})
    assert glue.asked == []
    raised.value.wait()
    assert made.serialize("orders", [], {"id": 7}) is not None
    assert made.serialize("orders", [], None) is None


def test_an_error_of_glue_names_the_schema() -> None:
    with pytest.raises(RegistryError, match=r"'forbidden-value'.*AccessDenied"):
        serializer(Glue()).serialize("forbidden", [], {"id": 7})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aws_schema_registry.codec", None)
    with pytest.raises(ConfigError, match=r"kprod\[glue\]"):
        GlueSerializer(None, None)
