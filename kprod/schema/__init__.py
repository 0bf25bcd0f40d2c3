"""Serializers with a schema registry, for Avro, Protobuf and JSON Schema, in Confluent's format:

>>> from kprod.schema import AvroSerializer, SchemaRegistry
"""

from __future__ import annotations

from kprod.schema.avro import AvroSerializer
from kprod.schema.errors import IncompatibleSchemaError, RegistryError, SchemaNotFoundError
from kprod.schema.json_schema import JsonSchemaSerializer
from kprod.schema.protobuf import ProtobufSerializer
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import RegisteredSchema, Schema, SchemaReference
from kprod.schema.serializer import SchemaSerializer
from kprod.security.client_credentials import ClientCredentials

__all__ = [
    "AvroSerializer",
    "ClientCredentials",
    "IncompatibleSchemaError",
    "JsonSchemaSerializer",
    "ProtobufSerializer",
    "RegisteredSchema",
    "RegistryError",
    "Schema",
    "SchemaNotFoundError",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaSerializer",
]
