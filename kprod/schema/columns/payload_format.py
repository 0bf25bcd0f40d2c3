"""Converts columns to the bytes of keys or values.

Avro, Protobuf and JSON are framed as Confluent's deserializers expect. Only ``registered_values``
sends requests to a registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kprod.errors import ConfigError, RecordTypeError
from kprod.schema.avro import AvroSerializer
from kprod.schema.columns.arrow_types import check_python, is_payload, plain_values
from kprod.schema.columns.encoded_columns import Convert, EncodedColumns
from kprod.schema.columns.json_texts import json_writer
from kprod.schema.encoding import AvroEncoding
from kprod.schema.json_schema import JsonSchemaSerializer
from kprod.schema.protobuf import ProtobufSerializer
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import RegisteredSchema, Schema
from kprod.schema.wire_format import id_bytes

RegisteredKind: TypeAlias = Literal["avro", "protobuf", "json_schema"]


def plain_avro(text: str, schema_id: int | None) -> EncodedColumns:
    """Avro with a given schema and id. If the id is None, values have no Confluent frame.

    Raises ConfigError if ``text`` is not an Avro schema, or if fastavro is not installed.
    """
    encoding = AvroEncoding(text, bare_bytes=schema_id is not None)
    try:
        encoding.parsed()
    except ConfigError as error:
        raise ConfigError(f"avro_schema: {error}") from error
    known = RegisteredSchema(Schema(text), schema_id or 0)
    return EncodedColumns(encoding, b"" if schema_id is None else id_bytes(known))


def registered_values(
    kind: RegisteredKind, subject: str, registry: SchemaRegistry, schema: Any
) -> EncodedColumns:
    """The encoding for a schema, which is requested from a registry now, on the Spark driver.

    ``schema`` is registered under ``subject`` if necessary; None means the latest version of the
    subject. For Protobuf, ``schema`` is the message class. Raises ConfigError, and RegistryError.
    """
    options: dict[str, Any] = {
        "subject": lambda _topic, _is_key, _name: subject,
        "use_latest_version": schema is None,
    }
    serializer: AvroSerializer | JsonSchemaSerializer | ProtobufSerializer
    if kind == "protobuf":
        serializer = ProtobufSerializer(registry, schema, **options)
    elif kind == "avro":
        serializer = AvroSerializer(registry, schema, **options)
    else:
        serializer = JsonSchemaSerializer(registry, schema, **options)
    return EncodedColumns(*serializer.fixed(""))


Kind = Literal["binary", "json", "avro", "protobuf", "json_schema"]


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """The format of values or keys. ``binary`` takes bytes and text unchanged. Immutable.

    ``binary`` takes no other types, unless ``objects`` is set: a serializer or an interceptor then
    gets the values.
    """

    kind: Kind = "binary"
    encoded: EncodedColumns | None = None
    objects: bool = False

    def converter(self, what: str, kind: Any) -> Convert:
        """A function that converts columns of an Arrow type to columns for ``send_arrow``.

        Raises RecordTypeError if the format cannot encode the type. Its text begins with ``what``.
        """
        if self.objects:
            check_python(what, kind)
            return lambda column: (column, {})
        try:
            if self.encoded is not None:
                return self.encoded.converter(kind)
            if is_payload(kind):
                return lambda column: (plain_values(column), {})
            if self.kind == "json":
                write = json_writer(kind)
                return lambda column: (write(column), {})
        except RecordTypeError as error:
            raise RecordTypeError(f"{what}: {error}") from None
        raise RecordTypeError(
            f"{what} must be string or binary, not {kind}: cast it, or write it as JSON"
            " (value_format, key_format)"
        )
