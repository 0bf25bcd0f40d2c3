"""The pictures of the documentation: SVG files drawn from the stored results, and by nobody else.

Each is a file of its own in ``docs/plots``, with the colours of daylight and of night in it and a
ground of its own, so that it can be read on whatever page shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.acceptance.tables import FIGURES
from benchmarks.report.chart import COLOURS, SHAPES, WIDTH, Bar, drawn, height_of, told_of
from benchmarks.result_file import FOLDER, read_result
from benchmarks.spread import spread_of

PLACE = Path(__file__).parents[2] / "docs" / "plots"
MARGIN, HEADING, GAP = 12, 26, 14
ENDURING = {"records_per_second": "records/s", "cpu_us_per_record": "CPU us/record"}
TEXT = """text { font: 14px system-ui, sans-serif } .heading { fill: var(--ink); font-weight: 600 }
.paper { fill: var(--paper) }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars that share an axis."""

    title: str
    unit: str
    bars: list[Bar]

    @property
    def told(self) -> str:
        """The same for those that do not see it."""
        each = (f"{bar.label} {told_of(bar.spread)}" for bar in self.bars)
        return f"{self.title}, {self.unit}: {', '.join(each)}"


def plot_files(folder: Path = FOLDER) -> dict[str, str]:
    """The SVG of each plot by the name of its file, of all whose results are stored."""
    made: dict[str, str] = {}
    for name in PLOTS:
        try:
            made[f"{name}.svg"] = svg(panels(name, folder))
        except FileNotFoundError:
            continue
    return made


def image(path: str, folder: Path = FOLDER) -> str:
    """Markdown that shows the plot whose file is ``path``, with what it says as its text.

    Raises KeyError for a plot that is none, FileNotFoundError before it was measured.
    """
    told = "; ".join(panel.told for panel in panels(Path(path).name, folder))
    return f"![{told}.]({path}.svg)\n"


def panels(name: str, folder: Path = FOLDER) -> list[Panel]:
    """What a plot shows, from above. Raises KeyError and FileNotFoundError."""
    stored, made = PLOTS[name]
    return made(read_result(stored, folder)["figures"])


def svg(shown: list[Panel]) -> str:
    """A file that needs nothing else."""
    parts, top = [], float(MARGIN)
    for panel in shown:
        heading = escape(f"{panel.title}, {panel.unit}")
        parts.append(f'<text x="0" y="{top + 14:.1f}" class="heading">{heading}</text>')
        parts.append(drawn(panel.unit, panel.bars, top=top + HEADING))
        top += HEADING + height_of(panel.bars) + GAP
    height = round(top - GAP + MARGIN)
    width = WIDTH + 2 * MARGIN
    told = escape("; ".join(panel.told for panel in shown))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img">\n<title>{told}</title>\n'
        f"<style>{COLOURS}{SHAPES}{TEXT}</style>\n"
        f'<rect x="{-MARGIN}" width="{width}" height="{height}" rx="6" class="paper"/>\n'
        + "\n".join(parts).replace("<g>", "\n<g>")
        + "\n</svg>\n"
    )


def _compared(comparison: str, figure: str, title: str) -> Callable[[Mapping[str, Any]], Panel]:
    def panel(figures: Mapping[str, Any]) -> Panel:
        sides = figures["comparisons"][comparison]["sides"]
        bars = [Bar(side, one["figures"][figure]) for side, one in sides.items()]
        return Panel(title, FIGURES[figure], bars)

    return panel


def _together(
    *makers: Callable[[Mapping[str, Any]], Panel],
) -> Callable[[Mapping[str, Any]], list[Panel]]:
    return lambda figures: [make(figures) for make in makers]


def _endurance(figures: Mapping[str, Any]) -> list[Panel]:
    """Rates and costs of turns that last for minutes, then the memory at their end."""

    def panel(load: str, name: str, unit: str) -> Panel:
        sides = figures["rounds"][load]
        bars = [
            Bar(side, spread_of([one[name] for one in rounds]).as_json())
            for side, rounds in sides.items()
        ]
        return Panel(f"Values of {load}", unit, bars)

    loads = list(figures["rounds"])
    rates = [panel(load, name, unit) for load in loads for name, unit in ENDURING.items()]
    return [*rates, panel(loads[0], "rss_mb_at_the_end", "memory in MB at the end")]


KEYED, KEYED_1000 = "Keyed records of 100 B", "Keyed records of 1,000 B"
LONE = "A record sent and waited for"
PLOTS: dict[str, tuple[str, Callable[[Mapping[str, Any]], list[Panel]]]] = {
    "throughput": (
        "defaults",
        _together(
            _compared("keyed-defaults", "records_per_second", KEYED),
            _compared("keyed-1000-defaults", "records_per_second", KEYED_1000),
            _compared("bulk-defaults", "records_per_second", "Many in a call, 100 B"),
        ),
    ),
    "cpu": (
        "defaults",
        _together(
            _compared("keyed-defaults", "cpu_us_per_record", KEYED),
            _compared("keyed-1000-defaults", "cpu_us_per_record", KEYED_1000),
            _compared("bulk-defaults", "cpu_us_per_record", "Many in a call, 100 B"),
        ),
    ),
    "latency": (
        "defaults",
        _together(
            _compared("lone-defaults", "p50_us", LONE),
            _compared("lone-defaults", "p99_us", LONE),
        ),
    ),
    "memory": (
        "acceptance",
        _together(_compared("memory", "peak_rss_mb", "Ten million records")),
    ),
    "endurance": ("endurance", _endurance),
}
"""By name: the stored result, and what of it is drawn."""
