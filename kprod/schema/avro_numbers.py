"""Checks for numbers that exceed their Avro type, which fastavro would write as other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[Any], None]
"""Raises ValueError for an object with a number that exceeds its type."""

NO_FLOAT = 2.0**128 - 2.0**103
"""The smallest number that overflows a 32-bit float."""


def number_check(schema: Any) -> Check | None:
    """The check for objects of ``schema``, which fastavro has parsed; None if none is needed.

    fastavro itself checks values of unions with several types, except for floats.
    """
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
    if isinstance(data, int) and not -(2**31) <= data < 2**31:
        raise ValueError(f"{data} does not fit into an Avro int")


def _float(data: Any) -> None:
    if isinstance(data, int | float) and NO_FLOAT <= abs(data) < math.inf:
        raise ValueError(f"{data} does not fit into an Avro float")


def _union(schema: list[Any], named: dict[str, Check]) -> Check | None:
    checks = [_check(branch, named) for branch in schema]
    others = [branch for branch in schema if branch != "null"]
    if len(others) > 1:
        return _float if _float in checks and "double" not in schema else None
    found = [check for check in checks if check is not None]
    if not found:
        return None
    return lambda data: None if data is None else found[0](data)


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
