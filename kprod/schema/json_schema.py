"""JSON serializer that validates by a JSON Schema, with the package jsonschema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kprod.errors import ConfigError
from kprod.schema.encoding import JsonEncoding
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import Schema, SchemaReference, check_type
from kprod.schema.serializer import SchemaSerializer


class JsonSchemaSerializer(SchemaSerializer):
    """Serializes objects as JSON in UTF-8. ``schema`` is a JSON string, or the parsed JSON.

    With ``validate``, each object is first checked against the schema. ``$schema`` names the draft
    of JSON Schema (by default 2020-12). ``to_dict`` converts the application's objects for
    ``json.dumps``. ``references`` are the schemas that ``$ref`` names. ``SchemaSerializer``
    describes the other options and the exceptions. Raises ConfigError for an invalid JSON Schema.
    """

    type = "JSON"
    _title: str | None = None

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | None = None,
        *,
        references: Sequence[SchemaReference] = (),
        validate: bool = True,
        to_dict: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        text = schema if isinstance(schema, str) or schema is None else json.dumps(schema)
        self._validate = validate
        self._title = None if text is None else _title(text)
        if text is not None:
            JsonEncoding(text).validator()  # raises now if the schema is invalid
        own = None if text is None else Schema(text, "JSON", tuple(references))
        super().__init__(registry, own, to_dict=to_dict, **options)

    def _record_name(self) -> str | None:
        return self._title

    def encoding(self, schema: Schema) -> JsonEncoding:
        """See ``SchemaSerializer``."""
        return JsonEncoding(schema.text, _gathered(schema, self._registry), self._validate)


def _title(text: str) -> str | None:
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"schema: expected a JSON Schema: {error}") from None
    return schema.get("title") if isinstance(schema, dict) else None


def _gathered(schema: Schema, registry: SchemaRegistry) -> tuple[tuple[str, str], ...]:
    """All schemas that the schema refers to, directly or indirectly, by URI."""
    found: dict[str, str] = {}
    meant: dict[str, SchemaReference] = {}
    left = list(schema.references)
    while left:
        reference = left.pop()
        known = meant.setdefault(reference.name, reference)
        if known != reference:
            raise ConfigError(
                f"schema: the name {reference.name!r} refers to version {known.version} of"
                f" {known.subject!r}, and to version {reference.version} of {reference.subject!r}"
            )
        if reference.name not in found:
            registered = registry.version(reference.subject, reference.version).schema
            check_type(registered, "JSON", reference.subject)
            found[reference.name] = registered.text
            left += registered.references
    return tuple(found.items())
