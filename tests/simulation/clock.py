"""Time that passes only when the simulation says so."""

from __future__ import annotations

WALL_START_MS = 1_700_000_000_000


class SimClock:
    """Stands still between events."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return WALL_START_MS + int(self.now * 1000)
