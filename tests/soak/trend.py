"""Whether a measure grows: the slope of Theil and Sen, tested against zero.

The slope is the median of the slopes of all pairs of points (Theil 1950); its bounds are order
statistics of these (Sen 1968), by the variance of Kendall's score with ties. Neither supposes a
distribution of the noise, and a few outliers change nothing. Points must not depend on each other:
a point is therefore the median of a whole cycle of turns, not a sample.

A step is no growth: a table that becomes twice as large once, as the interpreter's own do, raises
the slope of the whole series. So the slope has to be there in two of three parts of the time, too.
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
"""Of each bound by itself: a flat series is taken for a growing one once in a hundred runs."""
PARTS = 3


class Point(NamedTuple):
    """A value at a time in hours."""

    hours: float
    value: float


class Trend(NamedTuple):
    """Units per hour; with too few points for the confidence the bounds are infinite."""

    slope: float
    low: float
    high: float


def trend_of(points: Sequence[Point], confidence: float = CONFIDENCE) -> Trend:
    """The trend of any number of points."""
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
    """What is sampled, and the growth per hour that means nothing: less fails no run."""

    name: str
    unit: str
    negligible: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the points of one measure of one process say."""

    measure: Measure
    points: list[Point]
    trend: Trend

    @property
    def grows(self) -> bool:
        """Surely above zero, by more than is negligible, and not by one step."""
        slope = min(self.trend.slope, self._lasting_slope())
        return self.trend.low > 0 and slope > self.measure.negligible

    def _lasting_slope(self) -> float:
        """The median of the slopes in each part of the points."""
        bounds = [len(self.points) * part // PARTS for part in range(PARTS + 1)]
        parts = [self.points[first:last] for first, last in pairwise(bounds)]
        return statistics.median(trend_of(part).slope for part in parts)

    @property
    def is_decided(self) -> bool:
        """Whether there were points enough for any growth to be noticed."""
        return math.isfinite(self.trend.low)

    def __str__(self) -> str:
        """A line for people."""
        slope, low, high = self.trend
        verdict = "grows" if self.grows else "flat" if self.is_decided else "too short to tell"
        unit = f"{self.measure.unit} per hour".strip()
        return f"{verdict}: {slope:+.3g} {unit} ({low:+.3g} to {high:+.3g})"


def judge(measure: Measure, points: Sequence[Point]) -> Verdict:
    """The verdict on any number of points."""
    return Verdict(measure, list(points), trend_of(points))
