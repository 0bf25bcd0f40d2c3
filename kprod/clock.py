"""Time as an argument: loops own a clock, everything below them receives ``now``."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. Thread-safe."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps: deadlines, back-off, linger."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: record timestamps and nothing else."""
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
