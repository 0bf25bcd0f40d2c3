"""The options that say how keys and values are converted to bytes.

Only the driver sends requests to a schema registry; tasks do not need one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from kprod.config.secret import Secret, exposed
from kprod.errors import ConfigError
from kprod.schema import SchemaRegistry
from kprod.schema.columns.encoded_columns import EncodedColumns
from kprod.schema.columns.payload_format import (
    Kind,
    PayloadFormat,
    RegisteredKind,
    plain_avro,
    registered_values,
)
from kprod.spark.options import KeyFormat

SCHEMAS = {"avro": "avro_schema", "json_schema": "json_schema", "protobuf": "protobuf_message"}
"""For each format with a schema, the option that has the schema."""


def key_format(kind: str) -> PayloadFormat:
    """How keys are converted to bytes. Raises ConfigError."""
    return PayloadFormat(_checked("key", kind, get_args(KeyFormat)))


def value_format(topic: str | None, options: Mapping[str, Any]) -> PayloadFormat:
    """How values are converted to bytes, according to a writer's options.

    Raises ConfigError for contradicting options, and the errors of a schema registry.
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
        if isinstance(registry, str | Secret):  # its address
            registry = SchemaRegistry(exposed(registry))
        if kind == "protobuf":
            schema = _message(schema)
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
