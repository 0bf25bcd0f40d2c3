"""A clock that only ``advance`` moves."""

from __future__ import annotations


class FakeClock:
    """Implements ``kprod.clock.Clock``; starts far from zero, as a real monotonic clock may."""

    def __init__(self, now: float = 1_000.0, wall_ms: int = 1_700_000_000_000) -> None:
        self.now = now
        self._wall_ms = wall_ms - int(now * 1000)

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return self._wall_ms + int(self.now * 1000)

    def advance(self, seconds: float) -> None:
        self.now += seconds
