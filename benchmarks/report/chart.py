"""Bars with the least and the most of what was measured, as SVG that needs nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from benchmarks.acceptance.tables import figure

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 920, 230, 280
ROW, BAR, TOP = 26, 14, 8
OURS = "kprod"


@dataclass(frozen=True, slots=True)
class Bar:
    """A stored spread by name: ``median``, ``min`` and ``max`` of it are drawn."""

    label: str
    spread: Mapping[str, Any]


def bar_chart(title: str, unit: str, bars: Sequence[Bar], limit: float | None = None) -> str:
    """A figure with a bar for each median and a line from the least to the most.

    All bars begin at zero. ``limit`` is drawn as a dashed line. No bars: an empty string.
    """
    if not bars:
        return ""
    most = max([bar.spread["max"] for bar in bars] + ([limit] if limit else [])) or 1.0
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    height = TOP + ROW * len(bars)
    rows = "".join(_row(n, bar, unit, room / most) for n, bar in enumerate(bars))
    line = "" if limit is None else _limit_line(LABEL_WIDTH + limit * room / most, height)
    told = escape(f"{title}, {unit}")
    return (
        f"<figure><figcaption>{told}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{told}">'
        f"{rows}{line}</svg></figure>\n"
    )


def _row(number: int, bar: Bar, unit: str, scale: float) -> str:
    spread, middle = bar.spread, TOP + ROW * number + ROW / 2 - 4
    length = spread["median"] * scale
    least, most = LABEL_WIDTH + spread["min"] * scale, LABEL_WIDTH + spread["max"] * scale
    kind = "ours" if bar.label.startswith(OURS) else "other"
    told = f"{figure(spread['median'])} ({figure(spread['min'])} to {figure(spread['max'])})"
    return (
        f"<g><title>{escape(f'{bar.label}: {told} {unit}')}</title>"
        f'<text x="{LABEL_WIDTH - 8}" y="{middle + 4:.1f}" class="label">{escape(bar.label)}</text>'
        f'<rect x="{LABEL_WIDTH}" y="{middle - BAR / 2:.1f}" width="{max(length, 1):.1f}"'
        f' height="{BAR}" class="{kind}"/>'
        f'<path d="M{least:.1f} {middle:.1f}H{most:.1f}M{least:.1f} {middle - 4:.1f}v8'
        f'M{most:.1f} {middle - 4:.1f}v8" class="spread"/>'
        f'<text x="{WIDTH - VALUE_WIDTH + 8}" y="{middle + 4:.1f}" class="value">{told}</text></g>'
    )


def _limit_line(x: float, height: int) -> str:
    return f'<path d="M{x:.1f} 0V{height}" class="limit"><title>goal</title></path>'


PLOT_HEIGHT, POINT = 140, 2.5


def trend_chart(title: str, unit: str, points: Sequence[tuple[float, float]], slope: float) -> str:
    """A figure with a dot for each pair of hours and value, and a line of ``slope`` per hour.

    The line goes through the medians of both. The values begin at the least. No points: an empty
    string.
    """
    if not points:
        return ""
    hours, values = ([point[axis] for point in points] for axis in (0, 1))
    least, most = min(values), max(values)
    across = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / ((max(hours) - min(hours)) or 1.0)
    up = (PLOT_HEIGHT - 2 * TOP) / ((most - least) or 1.0)

    def place(hour: float, value: float) -> tuple[float, float]:
        return LABEL_WIDTH + (hour - min(hours)) * across, PLOT_HEIGHT - TOP - (value - least) * up

    dots = "".join(
        '<circle cx="{:.1f}" cy="{:.1f}" r="{}" class="ours"/>'.format(*place(*point), POINT)
        for point in points
    )
    middle = statistics.median(values) - slope * statistics.median(hours)
    ends = [place(hour, middle + slope * hour) for hour in (min(hours), max(hours))]
    line = "M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*ends[0], *ends[1])
    told = escape(title)
    labels = "".join(
        f'<text x="{LABEL_WIDTH - 8}" y="{place(0, value)[1] + 4:.1f}" class="label">'
        f"{escape(f'{figure(value)} {unit}')}</text>"
        for value in {least, most}
    )
    return (
        f"<figure><figcaption>{told}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {PLOT_HEIGHT}" role="img" aria-label="{told}">'
        f'{labels}{dots}<path d="{line}" class="limit"/></svg></figure>\n'
    )
