"""How a column becomes the bytes of a key or a value.

Avro, Protobuf and JSON are framed as Confluent's deserializers expect. The driver asks the registry
(``registered_values``); the tasks encode, and need none.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from kprod.errors import ConfigError, KprodError, RecordTypeError, SerializationError
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
    """The encoder of a cell, and the bytes before each result. Immutable; it pickles."""

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
                    encoded = encode(_readable(cell))
                except Exception as error:  # whatever the format's library raises
                    faults[row] = SerializationError(
                        f"the value does not fit the schema: {type(error).__name__}: {error}"
                    )
            cells.append(encoded)
        return pa.array(cells, pa.large_binary()), faults

    def _objects(self, column: Any) -> Iterator[Any]:
        """The cells as Python has them; for JSON what their text says, without dates and bytes."""
        if not isinstance(self.encoding, JsonEncoding):
            yield from _cells(column)
            return
        for text in json_texts(column).to_pylist():
            yield None if text is None else json.loads(text)


def _cells(column: Any) -> Iterator[Any]:
    """The cells as Python objects, and for those with a text that is no UTF-8 the error."""
    try:
        yield from column.to_pylist()
    except UnicodeDecodeError:
        yield from map(_cell, column)


def _cell(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError as error:
        return error


def _readable(cell: Any) -> Any:
    if isinstance(cell, UnicodeDecodeError):
        raise cell
    return cell


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


Kind = Literal["binary", "json", "avro", "protobuf", "json_schema"]


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """``binary``: bytes and text as they are; the others: anything. Immutable."""

    kind: Kind = "binary"
    encoded: EncodedValues | None = None

    def encode(self, role: str, column: Any) -> tuple[Any, Mapping[int, KprodError]]:
        """A column that ``send_arrow`` takes, and what is wrong with single rows, by number.

        Raises RecordTypeError, naming ``role``, when the column's type has no such form.
        """
        if self.encoded is not None:
            return self.encoded.encode(column)
        if self.kind == "json" and not is_payload(column.type):
            return json_texts(column), {}
        return _bytes(role, column), {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """The options about the schema of values. Immutable.

    ``of_kind`` has the schema that was given for each format.
    """

    of_kind: Mapping[str, Any]
    schema_id: int | None
    subject: str | None
    registry: Any

    def encoded(self, kind: str) -> EncodedValues | None:
        """How values are encoded. Raises ConfigError, and what a registry refuses."""
        for other, schema in self.of_kind.items():
            if other != kind and schema is not None:
                raise ConfigError(f'{_OPTIONS[other]} goes with value_format="{other}" only')
        if kind not in self.of_kind:
            if self.subject is not None or self.registry is not None or self.schema_id is not None:
                raise ConfigError(
                    "subject, schema_registry and schema_id go with value_format"
                    f" {', '.join(self.of_kind)} only"
                )
            return None
        if (self.subject is None) != (self.registry is None):
            raise ConfigError("subject and schema_registry go together")
        schema = self.of_kind[kind]
        if self.subject is not None:
            if self.schema_id is not None:
                raise ConfigError("schema_id is what the registry tells: give a subject, or an id")
            return registered_values(cast(Any, kind), self.subject, self.registry, schema)
        if kind != "avro":
            raise ConfigError(f'value_format="{kind}" needs subject and schema_registry')
        if schema is None:
            raise ConfigError(
                'value_format="avro" needs avro_schema, the schema as JSON text, or a subject and'
                " schema_registry"
            )
        return plain_avro(schema, self.schema_id)


_OPTIONS = {
    "avro": "avro_schema",
    "json_schema": "json_schema",
    "protobuf": "protobuf_message",
}


def payload_format(role: str, kind: str, schema: ValueSchema | None = None) -> PayloadFormat:
    """The format that options describe. Raises ConfigError for what does not go together."""
    kinds = get_args(Kind) if schema is not None else ("binary", "json")
    if kind not in kinds:
        raise ConfigError(f"{role}_format: expected one of {list(kinds)}; got {kind!r}")
    return PayloadFormat(cast(Kind, kind), None if schema is None else schema.encoded(kind))


def is_payload(kind: Any) -> bool:
    """Whether cells of this Arrow type are bytes or text, so that they need no format."""
    import pyarrow as pa
    from pyarrow import types

    if isinstance(kind, pa.BaseExtensionType):
        return is_payload(kind.storage_type)
    if types.is_dictionary(kind):
        return is_payload(kind.value_type)
    plain = (
        types.is_binary,
        types.is_string,
        types.is_large_binary,
        types.is_large_string,
        types.is_binary_view,
        types.is_string_view,
        types.is_fixed_size_binary,
        types.is_null,
    )
    return any(is_kind(kind) for is_kind in plain)


def _bytes(role: str, column: Any) -> Any:
    if not is_payload(column.type):
        raise RecordTypeError(
            f"{role}: the column must be binary or text, not {column.type}: cast it, or say"
            f' {role}_format="json"'
        )
    return plain_values(column)


def plain_values(column: Any) -> Any:
    """The column without a dictionary or an extension type around its cells."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        return plain_values(column.storage)
    if pa.types.is_dictionary(column.type):
        return plain_values(column.dictionary_decode())
    return column
