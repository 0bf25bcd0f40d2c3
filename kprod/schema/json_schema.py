"""JSON that is held to a JSON Schema, by jsonschema"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kprod.errors import ConfigError
from kprod.schema.encoding import JsonEncoding
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import Schema, SchemaReference
from kprod.schema.serializer import SchemaSerializer


class JsonSchemaSerializer(SchemaSerializer):
    """Writes objects as JSON in UTF-8. ``schema``: JSON text, or what that text stands for.

    ``validate`` holds each object to the schema before it is written, by the rules of its
    ``$schema`` (draft 2020-12 without one); ``to_dict`` makes of the application's objects what
    ``json.dumps`` takes. ``references`` are what a ``$ref`` names. The options, and what is raised
    when, are those of ``SchemaSerializer``. Raises ConfigError for what is no JSON Schema.
    """

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
            JsonEncoding(text).validator()  # it is told at once what is wrong with it
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
    """All schemas that the schema refers to, directly or not, by URI."""
    found: dict[str, str] = {}
    left = list(schema.references)
    while left:
        reference = left.pop()
        if reference.name not in found:
            registered = registry.version(reference.subject, reference.version).schema
            found[reference.name] = registered.text
            left += registered.references
    return tuple(found.items())
