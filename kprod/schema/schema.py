"""Schemas as a registry stores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

from kprod.errors import ConfigError

SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A version of a subject, to which a schema refers. Immutable.

    ``name`` is what the schema uses to refer to it: the full name of an Avro type, the path of an
    imported ``.proto`` file, or the URI in a ``$ref``.
    """

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """The reference as the JSON that registries use."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a string, its type and its references. Immutable."""

    text: str
    type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The body of a request. It omits the type of Avro, for registries that know only Avro."""
        body: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            body["schemaType"] = self.type
        if self.references:
            body["references"] = [reference.as_json() for reference in self.references]
        return body


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A registered schema, with its id in records, and its version in the subject. Immutable.

    ``guid`` is None if the registry does not support GUIDs. ``version`` is None if the registry did
    not return one. ``write_rules`` are the names and types of the rules that a writer must apply to
    each object.
    """

    schema: Schema
    id: int
    version: int | None = None
    guid: UUID | None = None
    write_rules: tuple[tuple[str, str], ...] = ()


def check_type(schema: Schema, expected: SchemaType, subject: str) -> None:
    """Raise ConfigError if the schema of ``subject`` does not have the ``expected`` type."""
    if schema.type != expected:
        raise ConfigError(
            f"subject {subject!r} has a schema of type {schema.type}, expected {expected}"
        )
