"""Several measurements of the same thing: the middle, and how far they lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

DIGITS = 4
"""Significant digits that are stored. What is quoted is made from these, so it can be checked."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, quartiles, median, maximum of ``n`` values. Quartiles by linear interpolation."""

    n: int
    min: float
    q1: float
    median: float
    q3: float
    max: float

    @property
    def iqr(self) -> float:
        """The middle half of the values lies within so much."""
        return self.q3 - self.q1

    def as_json(self) -> dict[str, Any]:
        """By name, to four significant digits."""
        figures = asdict(self) | {"iqr": self.iqr}
        return {name: significant(figure) for name, figure in figures.items()}


def spread_of(values: Sequence[float]) -> Spread:
    """The spread of one value or more. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    q1, median, q3 = (
        statistics.quantiles(ordered, n=4, method="inclusive")
        if len(ordered) > 1
        else [ordered[0]] * 3
    )
    return Spread(len(ordered), ordered[0], q1, median, q3, ordered[-1])


def significant(figure: float) -> float:
    """The figure to as many digits as are stored."""
    if isinstance(figure, int):
        return figure
    rounded = float(f"{figure:.{DIGITS}g}")
    return int(rounded) if rounded == int(rounded) else rounded
