"""The plot of a soak: a chart for every measure of every process, and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from benchmarks.report.chart import trend_chart
from benchmarks.report.page import html
from tests.soak.trend import Verdict

INTRODUCTION = """
<p>A point is the median of a cycle of turns, without those of the warm-up. The line has the slope
of Theil and Sen; a measure grows when the slope is surely above zero, and more than is negligible.
</p>
"""


def page(verdicts: Mapping[str, Mapping[str, Verdict]]) -> str:
    """The whole document, which needs nothing else; ``verdicts`` by process and measure."""
    parts = [
        f"<section><h2>{escape(process)}</h2>{''.join(map(_chart, measures.values()))}</section>\n"
        for process, measures in verdicts.items()
    ]
    return html("kprod: a soak", INTRODUCTION + "".join(parts))


def _chart(verdict: Verdict) -> str:
    measure = verdict.measure
    title = f"{measure.name}: {verdict}"
    return trend_chart(title, measure.unit, verdict.points, verdict.trend.slope)
