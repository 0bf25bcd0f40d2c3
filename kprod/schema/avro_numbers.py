"""Checks for numbers that exceed their Avro type, which fastavro would write as other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[Any], None]
"""Raises ValueError for an object with a number that exceeds its type."""

NO_FLOAT = 2.0**128 - 2.0**103
"""The smallest number that overflows a 32-bit float."""


def number_check(schema: Any) -> Check | None:
    """The check for objects of ``schema``, which fastavro has parsed; None if none is needed."""
    return _check(schema, {})


def _check(schema: Any, named: dict[str, Check]) -> Check | None:
    if isinstance(schema, list):
        return _union(schema, named)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "int":
        return _int
    if kind == "float":
        return _float
    if kind in ("array", "map"):
        return _items(_check(schema["items" if kind == "array" else "values"], named))
    if kind in ("record", "error"):
        return _record(schema, named)
    return named.get(kind)  # a type by name, perhaps recursive


def _int(data: Any) -> None:
    # fastavro takes every object with __int__: numbers of numpy, floats, Decimal.
    if hasattr(data, "__int__") and not -(2**31) <= data < 2**31:
        raise ValueError(f"{data} does not fit into an Avro int")


def _float(data: Any) -> None:
    if isinstance(data, int | float) and NO_FLOAT <= abs(data) < math.inf:
        raise ValueError(f"{data} does not fit into an Avro float")


def _union(schema: list[Any], named: dict[str, Check]) -> Check | None:
    """Refuses an object if every branch that may take it refuses it.

    A tuple names its branch: ``("int", 5)``. fastavro then checks nothing.
    """
    branches = [(each, _check(each, named)) for each in schema if each != "null"]
    if not any(check for _, check in branches):
        return None

    def look(data: Any) -> None:
        name = None
        if isinstance(data, tuple) and len(data) == 2:
            name, data = data
        refusal: ValueError | None = None
        for branch, check in branches:
            if name == _name(branch) if name is not None else _takes(branch, data):
                try:
                    if check is not None:
                        check(data)
                    return
                except ValueError as error:
                    refusal = error
        if refusal is not None:
            raise refusal

    return look


def _name(branch: Any) -> Any:
    return branch.get("name", branch["type"]) if isinstance(branch, dict) else branch


def _takes(branch: Any, data: Any) -> bool:
    """Whether fastavro may choose a branch for an object with numbers."""
    kind = branch["type"] if isinstance(branch, dict) else branch
    if isinstance(data, bool) or not isinstance(data, _TAKES.get(kind, Mapping)):
        return False
    if kind == "long":
        return bool(-(2**63) <= data < 2**63)
    fields = branch["fields"] if kind in ("record", "error") else ()
    return all(
        field["name"] in data or "default" in field or "null" in field["type"] for field in fields
    )


_TAKES: dict[str, Any] = {
    **dict.fromkeys(("boolean", "bytes", "enum", "fixed", "string"), ()),
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), (int, float)),
    "array": Sequence,
}
"""The classes of such objects by the name of the type; for other types it is Mapping."""


def _items(check: Check | None) -> Check | None:
    if check is None:
        return None

    def look(data: Any) -> None:
        items: Iterable[Any] = data.values() if isinstance(data, Mapping) else data
        for item in items:
            check(item)

    return look


def _record(schema: dict[str, Any], named: dict[str, Check]) -> Check | None:
    checks: list[tuple[str, Check]] = []

    def look(data: Any) -> None:
        for name, check in checks:
            value = data.get(name) if isinstance(data, Mapping) else None
            if value is not None:
                check(value)

    named[schema["name"]] = look
    found = [(field["name"], _check(field["type"], named)) for field in schema["fields"]]
    checks += [(name, check) for name, check in found if check is not None]
    return look if checks else None
