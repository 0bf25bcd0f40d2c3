"""The report: one HTML file that needs nothing else, made from the stored results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.report import sections
from benchmarks.report.chart import COLOURS, SHAPES
from benchmarks.result_file import FOLDER, read_result

SECTIONS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "acceptance": sections.acceptance,
    "pipeline": sections.pipeline,
    "kernels": sections.kernels,
    "instructions": sections.instructions,
}
QUICK = "-quick"

STYLE = f"""{COLOURS}{SHAPES}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper) }}
h1 {{ margin-bottom: 0 }} h2 {{ margin-top: 3rem; border-bottom: 1px solid var(--line) }}
p, figcaption {{ color: var(--soft) }}
figure {{ margin: 1rem 0; max-width: 40rem }}
svg {{ width: 100%; height: auto; font: 13px system-ui, sans-serif }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; font-size: 13px }}
td, th {{ padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums }}
td:first-child, th:first-child {{ text-align: left; white-space: normal; min-width: 12rem }}
"""

INTRODUCTION = """
<p>Medians; in brackets, and as lines across the bars, the least and the most of all rounds. Every
turn ran in a process of its own, against a broker that acknowledges at once and keeps nothing, in
another. Compare sides within a run; never a figure of one machine with one of another. How it is
measured, and what may be wrong with it: <code>benchmarks/README.md</code>.</p>
"""


def page(folder: Path = FOLDER) -> str:
    """The whole document. A full result is preferred to a quick one; what is missing is named."""
    parts = [_section(name, make, folder) for name, make in SECTIONS.items()]
    return html("kprod: benchmarks", INTRODUCTION + "".join(parts))


def html(title: str, body: str) -> str:
    """A document in the style of the report; ``body`` is HTML, ``title`` is text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>"
        f"<h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def _section(name: str, make: Callable[[Mapping[str, Any]], str], folder: Path) -> str:
    for found in (name, name + QUICK):
        try:
            result = read_result(found, folder)
        except FileNotFoundError:
            continue
        note = "<p>A short run: not for quoting.</p>" if found.endswith(QUICK) else ""
        return f"<section>{make(result)}{note}</section>\n"
    return f"<section><h2>{escape(name)}</h2><p>Not measured yet.</p></section>\n"
