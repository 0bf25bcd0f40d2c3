"""The Avro serializer, which uses fastavro, and schemas with referenced types inlined."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kprod.errors import ConfigError
from kprod.schema.encoding import AvroEncoding, parsed_json, unusable
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import Schema, SchemaReference, check_type
from kprod.schema.serializer import SchemaSerializer

_WITH_NAMES = ("record", "error", "enum", "fixed")
_WITHIN = ("items", "values", "type")
"""The attributes that may contain a schema, apart from a record's fields."""


class AvroSerializer(SchemaSerializer):
    """Serializes objects as Avro. ``schema`` is a JSON string, or the parsed JSON.

    Records are dicts; ``to_dict`` converts other objects to dicts. ``references`` define the types
    that the schema uses, but does not define. ``SchemaSerializer`` describes the other options and
    the exceptions. Raises ConfigError for an invalid Avro schema.
    """

    type = "AVRO"
    _name: str | None = None

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
            AvroEncoding(text).parsed()  # raises now if the schema is invalid
        own = None if text is None else Schema(text, "AVRO", tuple(references))
        super().__init__(registry, own, to_dict=to_dict, **options)

    def _record_name(self) -> str | None:
        return self._name

    def encoding(self, schema: Schema) -> AvroEncoding:
        """See ``SchemaSerializer``."""
        return AvroEncoding(complete(schema, self._registry), bare_bytes=True)


def avro_text(schema: str | Mapping[str, Any] | Sequence[Any] | None) -> str | None:
    """The schema as JSON text. The name of a primitive type is allowed. Raises ConfigError."""
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
    """The schema's text with its referenced types inlined."""
    if not schema.references:
        return schema.text
    definitions: dict[str, Any] = {}
    try:
        _gather(schema, registry, definitions, set())
        own = parsed_json(schema.text)
        _define(own, definitions)
        return json.dumps(_inlined(own, definitions, set()))
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise unusable(error) from None


def _gather(
    schema: Schema, registry: SchemaRegistry, definitions: dict[str, Any], seen: set[Any]
) -> None:
    """Add each type that the schema's references define, by its full name."""
    for reference in schema.references:
        place = reference.subject, reference.version
        if place not in seen:
            seen.add(place)
            found = registry.version(*place).schema
            check_type(found, "AVRO", reference.subject)
            _define(parsed_json(found.text), definitions)
            _gather(found, registry, definitions, seen)


def _define(schema: Any, definitions: dict[str, Any]) -> None:
    for name, definition in _named_types(schema):
        if definitions.setdefault(name, definition) != definition:
            raise ConfigError(f"schema: {name!r} is defined in two ways by the schema's references")


def _full_name(schema: Any, namespace: str = "") -> str | None:
    """The full name of a named type; None for other types. ``namespace`` is the enclosing one."""
    if not isinstance(schema, dict) or schema.get("type") not in _WITH_NAMES:
        return None
    name = str(schema.get("name", ""))
    inside = schema.get("namespace", namespace)
    return name if "." in name or not inside else f"{inside}.{name}"


def _named_types(schema: Any, namespace: str = "") -> Iterator[tuple[str, Any]]:
    """The types that a schema defines, with full names, outermost first."""
    name = _full_name(schema, namespace)
    if name is not None:
        namespace = name.rpartition(".")[0]
        yield name, {**schema, "name": name, "namespace": namespace}
    for part in _parts(schema):
        yield from _named_types(part, namespace)


def _parts(schema: Any) -> Iterable[Any]:
    """The direct parts of a schema."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return ()
    fields = [field["type"] for field in schema.get("fields", ())]
    return [*fields, *(schema[part] for part in _WITHIN if part in schema)]


def _inlined(
    schema: Any, definitions: Mapping[str, Any], defined: set[str], namespace: str = ""
) -> Any:
    """Inline each definition at its first use, because a type may be defined only once.

    ``defined`` has the full names of the types that are already defined.
    """
    if isinstance(schema, str):
        name = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        found = name if name in definitions else schema
        if found in defined or found not in definitions:
            return schema
        return _inlined(definitions[found], definitions, defined)
    if isinstance(schema, list):
        return [_inlined(each, definitions, defined, namespace) for each in schema]
    if not isinstance(schema, dict):
        return schema
    full_name = _full_name(schema, namespace)
    if full_name is not None:
        if full_name in defined and full_name in definitions:
            return full_name
        defined.add(full_name)
        namespace = full_name.rpartition(".")[0]
    made = dict(schema)
    if "fields" in made:
        made["fields"] = [
            {**field, "type": _inlined(field["type"], definitions, defined, namespace)}
            for field in made["fields"]
        ]
    for part in _WITHIN:
        if part in made:
            made[part] = _inlined(made[part], definitions, defined, namespace)
    return made
