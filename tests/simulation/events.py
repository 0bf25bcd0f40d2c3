"""What will happen, in the order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from tests.simulation.clock import SimClock

NEVER = float("inf")


class EventQueue:
    """Calls to be made at a time; those of one time in the order they were put in."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(when, self._clock.now), self._count, call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self._clock.now + seconds, call)

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else NEVER

    def skip(self, seconds: float) -> None:
        """Time passes, and everything else happens that much later."""
        self._clock.now += seconds
        self._heap = [(when + seconds, place, call) for when, place, call in self._heap]

    def run_next(self) -> None:
        """Move the clock to the next event and let it happen."""
        when, _, call = heapq.heappop(self._heap)
        self._clock.now = max(self._clock.now, when)
        call()

    def __len__(self) -> int:
        return len(self._heap)
