"""Schemas as a registry stores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

from kprod.errors import ConfigError

SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A reference: ``name`` in a schema stands for ``version`` of ``subject``. Immutable.

    ``name``: the full name of an Avro type, the path of an imported ``.proto`` file, or the URI in
    a ``$ref``.
    """

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """The JSON that the registry uses."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, its type and its references. Immutable."""

    text: str
    type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The body of a request; Avro has no type in it, for registries that know only Avro."""
        body: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            body["schemaType"] = self.type
        if self.references:
            body["references"] = [reference.as_json() for reference in self.references]
        return body


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, its id in records, and its version in the subject. Immutable.

    ``guid`` is None if the registry has none, ``version`` if the registry did not return it.
    ``write_rules`` are the rules that a writer must apply to each object: name and type.
    """

    schema: Schema
    id: int
    version: int | None = None
    guid: UUID | None = None
    write_rules: tuple[tuple[str, str], ...] = ()


def check_type(schema: Schema, expected: SchemaType, subject: str) -> None:
    """Raises ConfigError if the schema of ``subject`` does not have the ``expected`` type."""
    if schema.type != expected:
        raise ConfigError(
            f"subject {subject!r} has a schema of type {schema.type}, expected {expected}"
        )
