"""A random generator without jitter."""

from __future__ import annotations

import random


class SteadyRandom(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2
