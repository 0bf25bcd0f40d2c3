"""Time, the queue of events, and a hash of the past ones."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable

WALL_START_MS = 1_700_000_000_000


class SimClock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return WALL_START_MS + int(self.now * 1000)


NEVER = float("inf")
NEVER_YET = float("-inf")


class EventQueue:
    """Scheduled calls; those of one time run in the order of scheduling.

    The heap holds times without skips: so a skip delays every call equally, to the bit.
    """

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self._skipped = 0.0

    def at(self, when: float, call: Callable[[], object]) -> None:
        self.put(max(when, self._clock.now) - self._skipped, call)

    def put(self, when: float, call: Callable[[], object]) -> None:
        """``when`` as ``awake`` counts time."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, call))

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        self.at(self._clock.now + seconds, call)

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def awake(self) -> float:
        """The time, without what was skipped."""
        return self._clock.now - self._skipped

    @property
    def next_at(self) -> float:
        return self._heap[0][0] + self._skipped if self._heap else NEVER

    def skip(self, seconds: float) -> None:
        self._clock.now += seconds
        self._skipped += seconds

    def run_next(self) -> None:
        when, _, call = heapq.heappop(self._heap)
        self._clock.now = max(self._clock.now, when + self._skipped)
        call()

    def __len__(self) -> int:
        return len(self._heap)


class InOrder:
    """Calls in FIFO order, like bytes in one direction of a connection."""

    def __init__(self, events: EventQueue) -> None:
        self._events = events
        self._last = NEVER_YET

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """``seconds`` from now, but not before the previous call."""
        # Without skips: bytes written after a skip must not overtake delayed calls.
        self._last = max(self._last, self._events.awake + seconds)
        self._events.put(self._last, call)


class Trace:
    """Two runs of one schedule must have the same ``digest``."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._digest = 0
        self.events = 0

    def note(self, what: str, *details: object) -> None:
        line = f"{self._clock.now:.6f} {what} {details}"
        self._digest = zlib.crc32(line.encode(), self._digest)
        self.events += 1

    @property
    def digest(self) -> str:
        return f"{self._digest:08x}-{self.events}"
