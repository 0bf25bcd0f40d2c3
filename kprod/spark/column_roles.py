"""Assigns the columns of a DataFrame to the parts of a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from kprod.errors import ConfigError, RecordTypeError
from kprod.schema.columns.record_columns import ROLES


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The column names by role. A role that is not in ``named`` uses the column with its own name.

    With ``packs``, a frame without a value column gets one: a struct of the frame's columns. The
    struct omits a column that has a role because of the column's own name, and columns that kprod
    has ``added``. It includes other columns that ``named`` assigns to a role. Immutable.
    """

    named: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    packs: bool = False
    added: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.named) - set(ROLES))
        if unknown:
            raise ConfigError(f"columns: expected parts of a record, {list(ROLES)}; got {unknown}")

    def __reduce__(self) -> Any:  # a view of a dict does not pickle
        return type(self), (dict(self.named), self.packs, self.added)

    def with_added(self, role: str, name: str) -> ColumnRoles:
        """These roles, with a column ``name`` for ``role`` that is added to the frame."""
        return ColumnRoles({**self.named, role: name}, self.packs, self.added | {name})

    def find(self, columns: Sequence[str]) -> dict[str, str]:
        """The column of each role that has one. The value has none if it is packed.

        Raises RecordTypeError for a missing column, and for a column that would be lost because no
        part of a record corresponds to it.
        """
        missing = sorted(set(self.named.values()) - set(columns))
        if missing:
            raise RecordTypeError(f"there is no column {missing[0]!r} among {sorted(columns)}")
        named = ((role, self.named.get(role, role)) for role in ROLES)
        found = {role: name for role, name in named if name in columns}
        for name in found.values():
            if list(columns).count(name) > 1:
                raise RecordTypeError(f"there is more than one column {name!r}")
        if "value" not in found and not (self.packs and self.packed(columns)):
            raise RecordTypeError(f"there is no column 'value' among {sorted(columns)}")
        unknown = sorted(set(columns) - set(found.values()))
        if unknown and "value" in found:
            raise RecordTypeError(
                f"columns {unknown} are not part of a Kafka record: select only value, key, topic,"
                " partition, timestamp and headers, or map other names with columns="
            )
        return found

    def packed(self, columns: Iterable[str]) -> list[str]:
        """The columns that a packed value consists of."""
        own = {role for role in ROLES if role not in self.named} | self.added
        return [name for name in columns if name not in own]

    def arrange(self, batch: Any) -> Any:
        """``batch`` with its columns renamed to their roles, without copying data.

        Raises as ``find``.
        """
        names = batch.schema.names
        columns = {role: batch.column(name) for role, name in self.find(names).items()}
        if "value" not in columns:
            kept = self.packed(names)
            parts = [batch.column(name) for name in kept]
            fields = [batch.schema.field(name) for name in kept]
            columns["value"] = pa.StructArray.from_arrays(parts, fields=fields)
        return pa.RecordBatch.from_pydict(columns)


def roles_of(options: Mapping[str, Any]) -> ColumnRoles:
    """The roles that a writer's options assign to columns. Raises ConfigError."""
    named = {role: options[role] for role in ("key", "value") if options.get(role, role) != role}
    packs = options.get("value_format", "binary") != "binary"
    return ColumnRoles({**named, **(options.get("columns") or {})}, packs)
