"""Avro, by fastavro; a schema with the types that it names in their places"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kprod.errors import ConfigError
from kprod.schema.encoding import AvroEncoding, parsed_json, unusable
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import Schema, SchemaReference
from kprod.schema.serializer import SchemaSerializer

_WITH_NAMES = ("record", "error", "enum", "fixed")


class AvroSerializer(SchemaSerializer):
    """Writes objects as Avro. ``schema``: JSON text, or what that text stands for.

    A record is a dict; ``to_dict`` makes one of other objects. ``references`` are the types the
    schema names without defining them. The options, and what is raised when, are those of
    ``SchemaSerializer``. Raises ConfigError for what is no Avro schema.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        references: Sequence[SchemaReference] = (),
        to_dict: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        text = avro_text(schema)
        self._name = None if text is None else _full_name(json.loads(text))
        if text is not None and not references:
            AvroEncoding(text).parsed()  # it is told at once what is wrong with it
        own = None if text is None else Schema(text, "AVRO", tuple(references))
        super().__init__(registry, own, to_dict=to_dict, **options)

    def _record_name(self) -> str | None:
        return self._name

    def encoding(self, schema: Schema) -> AvroEncoding:
        """See ``SchemaSerializer``."""
        return AvroEncoding(complete(schema, self._registry))


def avro_text(schema: str | Mapping[str, Any] | Sequence[Any] | None) -> str | None:
    """The schema as JSON text; a name of a primitive type is one too. Raises ConfigError."""
    if schema is None:
        return None
    if not isinstance(schema, str):
        return json.dumps(schema)
    try:
        json.loads(schema)
    except ValueError:
        if schema.isidentifier():
            return json.dumps(schema)
        raise ConfigError("schema: expected an Avro schema, the text is not JSON") from None
    return schema


def complete(schema: Schema, registry: SchemaRegistry) -> str:
    """The schema's text with the types it refers to in their places."""
    if not schema.references:
        return schema.text
    definitions: dict[str, Any] = {}
    _gather(schema, registry, definitions)
    try:
        return json.dumps(_inlined(parsed_json(schema.text), definitions))
    except RecursionError as error:
        raise unusable(error) from None


def _gather(schema: Schema, registry: SchemaRegistry, definitions: dict[str, Any]) -> None:
    for reference in schema.references:
        if reference.name not in definitions:
            found = registry.version(reference.subject, reference.version).schema
            definitions[reference.name] = parsed_json(found.text)
            _gather(found, registry, definitions)


def _full_name(schema: Any, namespace: str = "") -> str | None:
    """The full name of a named type, None of any other; ``namespace`` is the one around it."""
    if not isinstance(schema, dict) or schema.get("type") not in _WITH_NAMES:
        return None
    name = str(schema.get("name", ""))
    inside = schema.get("namespace", namespace)
    return name if "." in name or not inside else f"{inside}.{name}"


def _inlined(schema: Any, definitions: dict[str, Any], namespace: str = "") -> Any:
    """The schema with each definition where its name stands first, for it may be there only once.

    ``definitions`` loses what was put in place.
    """
    if isinstance(schema, str):
        name = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        found = name if name in definitions else schema
        if found not in definitions:
            return schema
        definition = definitions.pop(found)
        if isinstance(definition, dict):
            definition = {"namespace": "", **definition}  # not the one around it
        return _inlined(definition, definitions)
    if isinstance(schema, list):
        return [_inlined(each, definitions, namespace) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = _full_name(schema, namespace) or ""
    inside = name.rpartition(".")[0] if name else namespace
    made = dict(schema)
    if "fields" in made:
        made["fields"] = [
            {**field, "type": _inlined(field["type"], definitions, inside)}
            for field in made["fields"]
        ]
    for part in ("items", "values"):
        if part in made:
            made[part] = _inlined(made[part], definitions, inside)
    if schema.get("type") not in (*_WITH_NAMES, "array", "map"):
        made["type"] = _inlined(schema.get("type"), definitions, inside)
    return made
