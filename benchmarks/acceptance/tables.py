"""Results as tables on a terminal, or in a file it is sent to."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.acceptance.goals import Judged
from benchmarks.rivals.comparison import Comparison, Taken
from benchmarks.spread import Spread

FIGURES = {
    "records_per_second": "records/s",
    "megabytes_per_second": "MB/s",
    "cpu_us_per_record": "CPU us/record",
    "p50_us": "p50 us",
    "p99_us": "p99 us",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p99.9_ms": "p99.9 ms",
    "idle_cpu_percent": "% of a core",
    "peak_rss_mb": "peak RSS MB",
    "records_per_batch": "records/batch",
}
"""Figures that tables show, and what they are called there."""


def comparison_table(comparison: Comparison, taken: Taken) -> Table:
    """A line for each side: medians, and in brackets the least and the most."""
    spreads = {side: taken.spreads(side) for side in comparison.sides}
    shown = [name for name in FIGURES if any(name in found for found in spreads.values())]
    table = Table("side", title=f"{comparison.name}: {comparison.question}", title_justify="left")
    for name in shown:
        table.add_column(FIGURES[name], justify="right")
    for side, found in spreads.items():
        cells = [cell(found[name]) if name in found else "-" for name in shown]
        table.add_row(side, *cells)
    return table


def goals_table(judged: Sequence[Judged]) -> Table:
    """A line for each goal."""
    table = Table("", "goal", title="Goals (medians, over the rounds)", title_justify="left")
    for name in ("wanted", "measured", "min to max", "IQR"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("reached")
    for one in judged:
        goal, spread = one.goal, one.spread
        bound = "<=" if goal.bound == "at most" else ">="
        wanted = f"{bound} {figure(goal.limit)} {goal.unit}"
        if spread is None:
            measured = ["not measured", "", ""]
        else:
            reach = f"{figure(spread.min)} to {figure(spread.max)}"
            measured = [f"{figure(spread.median)} {goal.unit}", reach, figure(spread.iqr)]
        table.add_row(
            str(goal.number),
            goal.text,
            wanted,
            *measured,
            "yes" if one.reached else "NO" if spread else "-",
        )
    return table


def cell(spread: Spread) -> str:
    """The median, and the least and the most of the values."""
    return f"{figure(spread.median)} ({figure(spread.min)} to {figure(spread.max)})"


def figure(value: float) -> str:
    """A number with about three digits that mean something, however small; a whole one as it is."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    if abs(value) < 1:
        return f"{value:#.2g}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
