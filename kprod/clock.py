"""Clocks, and exponential back-off (KIP-580)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Protocol

from kprod_ext.clock import monotonic, wall_ms

__all__ = ["Clock", "ExponentialBackoff", "SystemClock", "monotonic", "wall", "wall_ms"]


def wall() -> float:
    """Seconds since the epoch on the clock of ``wall_ms``, for token expiry. Thread-safe."""
    return wall_ms() / 1000


class Clock(Protocol):
    """A source of time. Thread-safe."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps, for deadlines, back-off and linger."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for timestamps. This clock may jump."""
        ...


class SystemClock:
    """The machine's clock. Tests that freeze Python's time functions do not affect it."""

    monotonic = staticmethod(monotonic)
    wall_ms = staticmethod(wall_ms)


JITTER = 0.2
BASE = 2


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Seconds to wait after failures: ``initial``, then doubled up to ``maximum``, each +-20 %.

    Thread-safe. With an equal ``rng``, a simulation can be repeated.
    """

    initial: float
    maximum: float
    rng: random.Random = field(default_factory=random.Random, compare=False)

    def delay(self, failures: int) -> float:
        """Seconds to wait after ``failures`` failures in a row; 0.0 if there was none."""
        if failures <= 0:
            return 0.0
        first = min(self.initial, self.maximum)
        doubled: float = min(first * BASE ** min(failures - 1, 30), self.maximum)
        return min(doubled * self.rng.uniform(1 - JITTER, 1 + JITTER), self.maximum)
