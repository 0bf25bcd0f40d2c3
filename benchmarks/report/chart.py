"""Bars with the least and the most of what was measured, as SVG that needs nothing else."""

from __future__ import annotations

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
