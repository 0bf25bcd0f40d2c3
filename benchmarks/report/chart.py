"""Bars with the least and the most of what was measured, as SVG that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from benchmarks.acceptance.tables import figure

WIDTH = 480
"""As narrow as a phone, so that the text is as large there as the text around it."""
ROW, BAR, TOP = 38, 12, 4
OURS = "kprod"

COLOURS = """
:root { color-scheme: light dark; --ours: #0b7285; --other: #adb5bd; --ink: #212529;
  --paper: #fff; --line: #ced4da; --soft: #495057 }
@media (prefers-color-scheme: dark) { :root { --ours: #3bc9db; --other: #5c636a; --ink: #e9ecef;
  --paper: #14171a; --line: #343a40; --soft: #adb5bd } }
"""
"""Of everything that is drawn from results: by daylight, then by night."""
SHAPES = """
.label, .value { fill: var(--ink) } .value { text-anchor: end }
.ours { fill: var(--ours) } .other { fill: var(--other) }
.spread { stroke: var(--ink); fill: none } .limit { stroke: var(--ink); stroke-dasharray: 4 3 }
"""


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
    told = escape(f"{title}, {unit}")
    return (
        f"<figure><figcaption>{told}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height_of(bars)}" role="img" aria-label="{told}">'
        f"{drawn(unit, bars, limit)}</svg></figure>\n"
    )


def height_of(bars: Sequence[Bar]) -> int:
    """How much of an SVG's height ``drawn`` takes."""
    return TOP + ROW * len(bars)


def drawn(unit: str, bars: Sequence[Bar], limit: float | None = None, top: float = 0) -> str:
    """The bars as elements of an SVG that is ``WIDTH`` wide, from ``top`` downwards."""
    most = max([bar.spread["max"] for bar in bars] + ([limit] if limit else [])) or 1.0
    scale = WIDTH / most
    rows = "".join(_row(top + TOP + ROW * n, bar, unit, scale) for n, bar in enumerate(bars))
    line = "" if limit is None else _limit_line(limit * scale, top, height_of(bars))
    return rows + line


def told_of(spread: Mapping[str, Any]) -> str:
    """The median, and the least and the most where they differ."""
    if spread["min"] == spread["max"]:
        return figure(spread["median"])
    return f"{figure(spread['median'])} ({figure(spread['min'])} to {figure(spread['max'])})"


def _row(top: float, bar: Bar, unit: str, scale: float) -> str:
    spread, middle = bar.spread, top + 18 + BAR / 2
    least, most = (min(max(spread[end] * scale, 0.5), WIDTH - 0.5) for end in ("min", "max"))
    kind = "ours" if bar.label.startswith(OURS) else "other"
    told = told_of(spread)
    return (
        f"<g><title>{escape(f'{bar.label}: {told} {unit}')}</title>"
        f'<text x="0" y="{top + 12:.1f}" class="label">{escape(bar.label)}</text>'
        f'<text x="{WIDTH}" y="{top + 12:.1f}" class="value">{told}</text>'
        f'<rect x="0" y="{middle - BAR / 2:.1f}" width="{max(spread["median"] * scale, 1):.1f}"'
        f' height="{BAR}" class="{kind}"/>'
        f'<path d="M{least:.1f} {middle:.1f}H{most:.1f}M{least:.1f} {middle - 4:.1f}v8'
        f'M{most:.1f} {middle - 4:.1f}v8" class="spread"/></g>'
    )


def _limit_line(x: float, top: float, height: int) -> str:
    return f'<path d="M{x:.1f} {top:.1f}v{height}" class="limit"><title>goal</title></path>'
