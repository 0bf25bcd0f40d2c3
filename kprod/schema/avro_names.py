"""Names of Avro types, and the definitions they stand for"""

from __future__ import annotations

from typing import Any

_WITH_NAMES = ("record", "error", "enum", "fixed")


def full_name(schema: Any, namespace: str = "") -> str | None:
    """The full name of a named type, None of any other; ``namespace`` is the one around it."""
    if not isinstance(schema, dict) or schema.get("type") not in _WITH_NAMES:
        return None
    name = str(schema.get("name", ""))
    inside = schema.get("namespace", namespace)
    return name if "." in name or not inside else f"{inside}.{name}"


def inlined(schema: Any, definitions: dict[str, Any], namespace: str = "") -> Any:
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
        return inlined(definition, definitions)
    if isinstance(schema, list):
        return [inlined(each, definitions, namespace) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = full_name(schema, namespace) or ""
    inside = name.rpartition(".")[0] if name else namespace
    made = dict(schema)
    if "fields" in made:
        made["fields"] = [
            {**field, "type": inlined(field["type"], definitions, inside)}
            for field in made["fields"]
        ]
    for part in ("items", "values"):
        if part in made:
            made[part] = inlined(made[part], definitions, inside)
    if schema.get("type") not in (*_WITH_NAMES, "array", "map"):
        made["type"] = inlined(schema.get("type"), definitions, inside)
    return made
