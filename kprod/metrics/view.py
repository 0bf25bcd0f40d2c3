"""What counters say of the recent past: Kafka's sampled statistics, without a sample per event.

Kafka keeps, for every statistic, as many samples as ``metrics.num.samples`` says, each of
``metrics.sample.window.ms``. Here the counters only ever grow, and once per window all of them are
written down; what happened since is a difference of two numbers.
"""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from kprod.metrics.counters import Values

SHORTEST = 1.0
"""Seconds that rates are computed over at least: the first records of all are no rate yet."""


class View(NamedTuple):
    """Counters ``now``, and ``before``: ``seconds`` ago; for peaks, the windows between."""

    now: Values
    before: Values
    windows: tuple[Values, ...]
    seconds: float

    def grown(self, name: str) -> float:
        """By how much a counter has grown."""
        return self.now[name] - self.before[name]

    def rate(self, name: str) -> float:
        """Its growth per second."""
        return self.grown(name) / max(self.seconds, SHORTEST)

    def mean(self, total: str, count: str) -> float:
        """The growth of one counter for each step of another; 0 when there was none."""
        steps = self.grown(count)
        return self.grown(total) / steps if steps else 0.0

    def peak(self, name: str) -> float:
        """The largest value in the sampled windows; 0 when there was none."""
        return max(map(itemgetter(name), self.windows), default=0)
