"""What one turn sends: so many transactions of so many records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``warm_up`` transactions go first, unmeasured; then come ``transactions``.

    Each has ``records`` records of ``size`` bytes, without keys.
    """

    transactions: int
    records: int
    warm_up: int
    size: int = 100

    @property
    def all_records(self) -> int:
        """What readers of committed records find afterwards."""
        return (self.warm_up + self.transactions) * self.records

    def as_json(self) -> dict[str, Any]:
        """As a mapping of names to values; ``Load(**mapping)`` is the same."""
        return asdict(self)
