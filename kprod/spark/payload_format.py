"""How a column becomes the bytes of a key or a value.

Avro, Protobuf and JSON are framed as Confluent's deserializers expect. The driver asks the registry
(``registered_values``); the tasks encode, and need none.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from kprod.config.secret import Secret, exposed
from kprod.errors import ConfigError, RecordTypeError
from kprod.schema import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    RegisteredSchema,
    Schema,
    SchemaRegistry,
)
from kprod.schema.columns.arrow_types import is_payload, plain_values
from kprod.schema.columns.encoded_columns import Convert, EncodedColumns
from kprod.schema.columns.json_texts import json_writer
from kprod.schema.encoding import AvroEncoding
from kprod.schema.wire_format import id_bytes

RegisteredKind: TypeAlias = Literal["avro", "protobuf", "json_schema"]


def plain_avro(text: str, schema_id: int | None) -> EncodedColumns:
    """Avro with a schema and an id that the application knows; without an id there is no frame.

    Raises ConfigError when it is no Avro schema, or fastavro is not installed.
    """
    encoding = AvroEncoding(text, bare_bytes=schema_id is not None)
    try:
        encoding.parsed()
    except ConfigError as error:
        raise ConfigError(f"avro_schema: {error}") from error
    known = RegisteredSchema(Schema(text), schema_id or 0)
    return EncodedColumns(encoding, b"" if schema_id is None else id_bytes(known))


def registered_values(
    kind: RegisteredKind, subject: str, registry: SchemaRegistry | Secret | str, schema: Any
) -> EncodedColumns:
    """Values with a schema of a registry, which is asked now, on the driver.

    ``schema`` is registered under ``subject`` unless it is there; None means the subject's latest.
    For Protobuf it is the class of messages, or where it is, as ``"package.module:Order"``. Raises
    ConfigError and what the registry refuses.
    """
    if isinstance(registry, str | Secret):  # its address
        registry = SchemaRegistry(exposed(registry))
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
    return EncodedColumns(*serializer.fixed(""))


def _message(given: Any) -> Any:
    if given is None:
        raise ConfigError('value_format="protobuf" needs protobuf_message, a message class')
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
    encoded: EncodedColumns | None = None

    def converter(self, what: str, kind: Any) -> Convert:
        """What makes of columns of an Arrow type those that ``send_arrow`` takes.

        Raises RecordTypeError, which begins with ``what``, when the type has no such form.
        """
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
            f"{what} must be string or binary, not {kind}: cast it, or use the format json"
        )


SCHEMAS = {"avro": "avro_schema", "json_schema": "json_schema", "protobuf": "protobuf_message"}
"""The option with the schema of each format that has one."""


def key_format(kind: str) -> PayloadFormat:
    """How keys become bytes. Raises ConfigError."""
    return PayloadFormat(_checked("key", kind, ("binary", "json")))


def value_format(topic: str | None, options: Mapping[str, Any]) -> PayloadFormat:
    """How values become bytes, by the options of a writer.

    Raises ConfigError for what does not go together, and what a schema registry refuses.
    """
    kind = _checked("value", options.get("value_format", "binary"), get_args(Kind))
    given = {name for name, value in options.items() if value is not None}
    for other, name in SCHEMAS.items():
        if other != kind and name in given:
            raise ConfigError(f'{name} requires value_format="{other}"')
    if kind in SCHEMAS:
        return PayloadFormat(kind, _with_schema(kind, topic, options))
    if given & {"subject", "schema_registry", "schema_id"}:
        raise ConfigError(
            f"subject, schema_registry and schema_id require value_format {' or '.join(SCHEMAS)}"
        )
    return PayloadFormat(kind)


def _checked(role: str, kind: Any, kinds: Sequence[str]) -> Kind:
    if kind not in kinds:
        raise ConfigError(f"{role}_format: expected one of {list(kinds)}; got {kind!r}")
    return cast(Kind, kind)


def _with_schema(kind: str, topic: str | None, options: Mapping[str, Any]) -> EncodedColumns:
    schema, schema_id = options.get(SCHEMAS[kind]), options.get("schema_id")
    subject, registry = options.get("subject"), options.get("schema_registry")
    if registry is not None:
        if schema_id is not None:
            raise ConfigError("schema_registry and schema_id cannot be combined")
        if subject is None and topic is None:
            raise ConfigError(
                "subject: the option is missing. If topic is set, its default is TOPIC-value; rows"
                " with a topic column need a subject"
            )
        subject = f"{topic}-value" if subject is None else subject
        return registered_values(cast(RegisteredKind, kind), subject, registry, schema)
    if subject is not None:
        raise ConfigError("subject requires schema_registry, which is missing")
    if kind != "avro":
        raise ConfigError(f'value_format="{kind}" needs schema_registry')
    if schema is None:
        raise ConfigError(
            'value_format="avro" needs avro_schema (a JSON string) or schema_registry'
        )
    return plain_avro(schema, schema_id)
