"""Everything that happened in one run, as a hash."""

from __future__ import annotations

import zlib

from tests.simulation.clock import SimClock


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
