"""What one turn sends: keyed records for so many seconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

KEYS = 1_000
PARTS = 3
"""A turn is looked at in so many parts of equal length: what lasts is the same in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``seconds`` of records of ``size`` bytes, with keys; ``warm_up`` seconds go first."""

    size: int
    seconds: float
    warm_up: float

    def as_json(self) -> dict[str, Any]:
        """As a mapping of names to values; ``Load(**mapping)`` is the same."""
        return asdict(self)
