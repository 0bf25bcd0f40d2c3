"""Time that passes only when the simulation says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

WALL_START_MS = 1_700_000_000_000
TICK = 1e-6


class SimClock:
    """Stands still between events.

    While ``ticking`` every look at it takes a microsecond: code that waits in a loop until its
    time is over comes to an end without anybody moving the clock.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._tick = 0.0
        self._ticked = 0.0

    def monotonic(self) -> float:
        self._ticked += self._tick
        return self.now + self._ticked

    def wall_ms(self) -> int:
        return WALL_START_MS + int(self.now * 1000)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        self._tick = TICK
        try:
            yield
        finally:
            self._tick = self._ticked = 0.0
