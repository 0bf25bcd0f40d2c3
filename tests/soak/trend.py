"""Whether a measure grows: the slope of Theil and Sen, tested against zero.

The slope is the median of the slopes of all pairs of points (Theil 1950); its bounds are order
statistics of these (Sen 1968), by the variance of Kendall's score with ties. Neither assumes a
distribution of the noise, and outliers have little effect. Points must be independent: each is the
median of a whole cycle.

A step is not growth, such as a hash table that is resized once. So the slope must also be positive
in two of three parts of the time.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

CONFIDENCE = 0.99
"""For each bound: a flat series is reported as growing in one of a hundred runs."""
PARTS = 3


class Point(NamedTuple):
    hours: float
    value: float


class Trend(NamedTuple):
    """Units per hour; with too few points for the confidence the bounds are infinite."""

    slope: float
    low: float
    high: float


def trend_of(points: Sequence[Point], confidence: float = CONFIDENCE) -> Trend:
    slopes = sorted(
        (after.value - before.value) / (after.hours - before.hours)
        for before, after in combinations(points, 2)
        if after.hours != before.hours
    )
    reach = statistics.NormalDist().inv_cdf(confidence) * _deviation(points)
    middle = statistics.median(slopes) if slopes else 0.0
    if reach >= len(slopes):
        return Trend(middle, -math.inf, math.inf)
    low = slopes[round((len(slopes) - reach) / 2)]
    high = slopes[round((len(slopes) + reach) / 2) - 1]
    return Trend(middle, low, high)


def _deviation(points: Sequence[Point]) -> float:
    """The standard deviation of Kendall's score when there is no trend."""
    sizes = [len(points), *Counter(point.value for point in points).values()]
    total, *ties = (size * (size - 1) * (2 * size + 5) for size in sizes)
    return math.sqrt((total - sum(ties)) / 18)


@dataclass(frozen=True, slots=True)
class Measure:
    """What is sampled, and the growth per hour that is ignored."""

    name: str
    unit: str
    negligible: float


@dataclass(frozen=True, slots=True)
class Result:
    measure: Measure
    points: list[Point]
    trend: Trend

    @property
    def grows(self) -> bool:
        """Significantly above zero, not negligible, and not by a single step."""
        slope = min(self.trend.slope, self._lasting_slope())
        return self.trend.low > 0 and slope > self.measure.negligible

    def _lasting_slope(self) -> float:
        bounds = [len(self.points) * part // PARTS for part in range(PARTS + 1)]
        parts = [self.points[first:last] for first, last in pairwise(bounds)]
        return statistics.median(trend_of(part).slope for part in parts)

    @property
    def is_decided(self) -> bool:
        """Whether there were enough points to detect growth."""
        return math.isfinite(self.trend.low)

    def __str__(self) -> str:
        slope, low, high = self.trend
        result = "grows" if self.grows else "flat" if self.is_decided else "too short to tell"
        unit = f"{self.measure.unit} per hour".strip()
        return f"{result}: {slope:+.3g} {unit} ({low:+.3g} to {high:+.3g})"


def assess(measure: Measure, points: Sequence[Point]) -> Result:
    return Result(measure, list(points), trend_of(points))
