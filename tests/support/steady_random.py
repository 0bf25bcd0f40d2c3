"""Chance that always falls in the middle, so that jitter vanishes."""

from __future__ import annotations

import random


class SteadyRandom(random.Random):
    """``uniform`` gives the middle of the range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2
