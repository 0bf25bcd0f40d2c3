"""Schemas as a registry keeps them"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A reference: the name ``name`` in a schema means ``version`` of ``subject``. Immutable.

    ``name``: the full name of an Avro type, the path of an imported ``.proto`` file, or the URI in
    a ``$ref``.
    """

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """As the registry has it."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, its type, and what it refers to. Immutable."""

    text: str
    type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The body of a request; a registry without types knows Avro only, and takes no type."""
        body: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            body["schemaType"] = self.type
        if self.references:
            body["references"] = [reference.as_json() for reference in self.references]
        return body


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, the id by which consumers find it, and its version in the subject. Immutable.

    ``guid`` is None with registries that have none, ``version`` where the registry did not say.
    """

    schema: Schema
    id: int
    version: int | None = None
    guid: UUID | None = None
