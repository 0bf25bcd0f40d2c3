"""JSON that is held to a JSON Schema, by jsonschema"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kprod.errors import ConfigError
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import Schema, SchemaReference
from kprod.schema.serializer import Encode, SchemaSerializer


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
        self._to_dict = to_dict
        self._title = None if text is None else _title(text)
        if text is not None:
            _validator(text, {})
        own = None if text is None else Schema(text, "JSON", tuple(references))
        super().__init__(registry, own, **options)

    def _record_name(self) -> str | None:
        return self._title

    def _encoder(self, prefix: bytes, schema: Schema) -> Encode:
        validator = _validator(schema.text, _gathered(schema, self._registry))
        to_dict, validate = self._to_dict, self._validate

        def encode(data: Any) -> bytes:
            if to_dict is not None:
                data = to_dict(data)
            if validate:
                validator.validate(data)
            text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            return prefix + text.encode()

        return encode


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"schema: expected a JSON Schema: {error}") from None


def _title(text: str) -> str | None:
    schema = _loaded(text)
    return schema.get("title") if isinstance(schema, dict) else None


def _validator(text: str, resources: Mapping[str, Any]) -> Any:
    try:
        from jsonschema import Draft202012Validator, SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT202012
    except ImportError:
        raise ConfigError("JSON Schema needs jsonschema: pip install 'kprod[schema]'") from None
    schema = _loaded(text)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(f"schema: {error.message}") from None
    known: Any = Registry().with_resources(
        (uri, Resource.from_contents(found, default_specification=DRAFT202012))
        for uri, found in resources.items()
    )
    return kind(schema, registry=known)


def _gathered(schema: Schema, registry: SchemaRegistry) -> dict[str, Any]:
    """What the schema refers to, and what that refers to, by its URI."""
    found: dict[str, Any] = {}
    left = list(schema.references)
    while left:
        reference = left.pop()
        if reference.name not in found:
            registered = registry.version(reference.subject, reference.version).schema
            found[reference.name] = json.loads(registered.text)
            left += registered.references
    return found
