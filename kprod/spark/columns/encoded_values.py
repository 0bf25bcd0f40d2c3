"""Avro, Protobuf and JSON of a whole Arrow column, framed as Confluent's deserializers expect

The driver asks the registry (``registered_values``); the tasks encode, and need none.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kprod.errors import ConfigError, SerializationError
from kprod.schema import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    RegisteredSchema,
    Schema,
    SchemaRegistry,
)
from kprod.schema.encoding import AvroEncoding, Encoding, JsonEncoding
from kprod.schema.wire_format import id_bytes
from kprod.spark.columns.avro_columns import avro_records
from kprod.spark.columns.json_values import json_texts

RegisteredKind: TypeAlias = Literal["avro", "protobuf", "json_schema"]


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """What encodes a cell, and what stands before its bytes. Immutable; it pickles."""

    encoding: Encoding
    prefix: bytes = b""

    def encode(self, column: Any) -> tuple[Any, Mapping[int, SerializationError]]:
        """The column as ``large_binary``, and why rows of it could not be written, by number.

        Null stays null, as do the rows that could not be written.
        """
        import pyarrow as pa

        if isinstance(self.encoding, AvroEncoding):
            fields = self.encoding.flat_fields()
            records = None if fields is None else avro_records(fields, column, self.prefix)
            if records is not None:
                return records, {}
        encode = self.encoding.encoder(self.prefix)
        cells: list[bytes | None] = []
        faults: dict[int, SerializationError] = {}
        for row, cell in enumerate(self._objects(column)):
            encoded = None
            if cell is not None:
                try:
                    encoded = encode(cell)
                except Exception as error:  # whatever the format's library raises
                    faults[row] = SerializationError(
                        f"the value does not fit the schema: {type(error).__name__}: {error}"
                    )
            cells.append(encoded)
        return pa.array(cells, pa.large_binary()), faults

    def _objects(self, column: Any) -> Iterator[Any]:
        """The cells as Python has them; for JSON what their text says, without dates and bytes."""
        if not isinstance(self.encoding, JsonEncoding):
            yield from column.to_pylist()
            return
        for text in json_texts(column).to_pylist():
            yield None if text is None else json.loads(text)


def plain_avro(text: str, schema_id: int | None) -> EncodedValues:
    """Avro with a schema and an id that the application knows; without an id there is no frame.

    Raises ConfigError when it is no Avro schema, or fastavro is not installed.
    """
    encoding = AvroEncoding(text)
    try:
        encoding.parsed()
    except ConfigError as error:
        raise ConfigError(f"avro_schema: {error}") from error
    known = RegisteredSchema(Schema(text), schema_id or 0)
    return EncodedValues(encoding, b"" if schema_id is None else id_bytes(known))


def registered_values(
    kind: RegisteredKind, subject: str, registry: SchemaRegistry | str, schema: Any
) -> EncodedValues:
    """Values with a schema of a registry, which is asked now, on the driver.

    ``schema`` is registered under ``subject`` unless it is there; None means the subject's latest.
    For Protobuf it is the class of messages, or where it is, as ``"package.module:Order"``. Raises
    ConfigError and what the registry refuses.
    """
    if isinstance(registry, str):
        registry = SchemaRegistry(registry)
    options: dict[str, Any] = {
        "subject": lambda _topic, _is_key, _name: subject,
        "use_latest_version": schema is None,
    }
    serializer: AvroSerializer | JsonSchemaSerializer | ProtobufSerializer
    if kind == "protobuf":
        serializer = ProtobufSerializer(registry, _message(schema), **options)
    elif kind == "avro":
        serializer = AvroSerializer(registry, schema, **options)
    else:
        serializer = JsonSchemaSerializer(registry, schema, **options)
    return EncodedValues(*serializer.fixed(""))


def _message(given: Any) -> Any:
    if given is None:
        raise ConfigError('value_format="protobuf" needs protobuf_message, a class of messages')
    if not isinstance(given, str):
        return given
    module, _, name = given.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"protobuf_message: expected package.module:Class, got {given!r}: {error}"
        ) from None
