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


def in_seconds(seconds: float) -> str:
    """A time for an error message: ``0.05 s`` where the sum of many floats is 0.04999999."""
    return f"{round(seconds, 3):g} s"


class SystemClock:
    """The clock of the machine."""

    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
