"""Exponential back-off with jitter (KIP-580, Kafka's ``ExponentialBackoff``)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

JITTER = 0.2
BASE = 2


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Seconds to wait after a failure: ``initial``, doubled each time up to ``maximum``, +-20 %.

    Thread-safe. ``rng`` is injected so that a simulation can be repeated.
    """

    initial: float
    maximum: float
    rng: random.Random = field(default_factory=random.Random, compare=False)

    def delay(self, failures: int) -> float:
        """Seconds to wait after ``failures`` failures in a row; 0.0 for none."""
        if failures <= 0:
            return 0.0
        first = min(self.initial, self.maximum)
        doubled: float = min(first * BASE ** min(failures - 1, 30), self.maximum)
        return min(doubled * self.rng.uniform(1 - JITTER, 1 + JITTER), self.maximum)
