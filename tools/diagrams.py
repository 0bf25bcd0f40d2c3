"""The diagrams of the documentation, drawn by Graphviz from the code, and from a table of its own.

    python -m tools.diagrams

writes ``docs/diagrams``: the layers, from the contract that holds them; the state machines of
transactions, that of the producer and that of the broker, from their tables of moves; and which
call to use, from the first table of ``docs/choosing.md``. It needs ``dot`` (apt-get install
graphviz); a test compares what is drawn with its source, and does not.
"""

from __future__ import annotations

import html
import re
import subprocess
import textwrap
import tomllib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from benchmarks.report.chart import COLOURS
from kprod.broker.transactions.transaction import LEGAL
from kprod.sender.transactions import FROM, LEADS_TO, SENDER_MOVES, State

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "docs" / "diagrams"
Edge = tuple[str, str]
"""From, to."""
EVERY = "every state"
HEIR = "in another process"
BESIDE = "yes"
"""The label of an edge to what is drawn at the side."""
NARROW = 22
"""Letters in a line of a box: a question and its answer fit beside each other on a phone."""
STYLE = f"""<style>{COLOURS}
text {{ font: 12px system-ui, sans-serif; fill: var(--ink) }}
.node path, .node polygon {{ fill: none; stroke: var(--ink) }}
.edge path {{ stroke: var(--soft) }} .edge polygon {{ fill: var(--soft); stroke: var(--soft) }}
.caller path {{ stroke: var(--ours) }} .caller polygon {{ fill: var(--ours); stroke: var(--ours) }}
.paper {{ fill: var(--paper) }}
</style>"""


def layers() -> dict[Edge, str]:
    """A layer may import from the one below it, and from all below that."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = {tuple(one.get("containers", ())): one for one in contracts["contracts"]}
    named = found[("kprod",)]["layers"]
    rows = [", ".join(re.findall(r"\w+", row)) for row in named]
    return dict.fromkeys(pairwise(rows), "")


def producer() -> dict[Edge, str]:
    """The moves of a transactional producer; those of callers bear the name of the call."""
    told: dict[Edge, str] = {}
    for call, after in LEADS_TO.items():
        told |= {(before.name, after.name): f"{call}()" for before in FROM[call]}
    told[State.UNINITIALIZED.name, State.PREPARED.name] = HEIR
    for after, befores in SENDER_MOVES.items():
        told |= {(before.name, after.name): "" for before in befores}
    told = {edge: label for edge, label in told.items() if edge[1] != State.FATAL_ERROR.name}
    return told | {(EVERY, State.FATAL_ERROR.name): ""}


def coordinator() -> dict[Edge, str]:
    """The moves of a transaction at its coordinator."""
    return {
        (before.spelled, after.spelled): ""
        for before, allowed in LEGAL.items()
        for after in sorted(allowed)
        if after is not before
    }


def choice() -> dict[Edge, str]:
    """The rows of the table as questions, one after the other, each with its answer."""
    page = (ROOT / "docs" / "choosing.md").read_text()
    table = page.partition("|---|---|\n")[2].partition("\n\n")[0]
    cells = [row.split("|") for row in table.splitlines()]
    rows = [(_wrapped(f"{asked.strip()}?"), _wrapped(answer)) for _, asked, answer, _ in cells]
    told: dict[Edge, str] = {("your program", rows[0][0]): ""}
    told |= dict.fromkeys(rows, BESIDE)
    return told | {(above, below): "no" for (above, _), (below, _) in pairwise(rows)}


def _wrapped(cell: str) -> str:
    """The words of a cell, without the page that it leads to, in short lines for ``dot``."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell.partition(": [")[0]).replace("`", "")
    return "\\n".join(textwrap.wrap(words, NARROW, break_long_words=False, break_on_hyphens=False))


DIAGRAMS = {
    "layers": (layers, "The layers of kprod: each imports only from those below it"),
    "producer-transaction": (producer, "The states of a transactional producer"),
    "coordinator-transaction": (coordinator, "The states of a transaction at its coordinator"),
    "choice": (choice, "Which call to use: questions about a program, from above"),
}


def svg(name: str) -> str:
    """The drawing, in the colours of day and night. Raises FileNotFoundError without ``dot``."""
    make, told = DIAGRAMS[name]
    edges = make().items()
    beside = [_beside(edge) for edge, label in edges if label == BESIDE]
    lines = [*(f"{_edge(edge, label)};" for edge, label in edges), *beside]
    look = "node [shape=box style=rounded height=0.4] edge [fontsize=11 arrowsize=0.6]"
    source = f"digraph {{ {look} nodesep=0.2 ranksep=0.3\n" + "\n".join(lines) + "\n}"
    ran = subprocess.run(["dot", "-Tsvg"], input=source, capture_output=True, text=True, check=True)
    drawn = ran.stdout[ran.stdout.index("<svg") :]
    drawn = re.sub(r'(fill|stroke)="black"|font-[a-z]+="[^"]*"', "", drawn)
    drawn = re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', drawn, count=2)  # text of 12 px
    drawn = drawn.replace('fill="white" stroke="transparent"', 'class="paper"')
    return drawn.replace(">", f' role="img" aria-label="{told}">\n{STYLE}', 1)


def _edge(edge: Edge, label: str) -> str:
    before, after = edge
    by = f' [label=" {label}" class=caller]' if label else ""
    return f"{_quoted(before)} -> {_quoted(after)}{by}"


def _beside(edge: Edge) -> str:
    before, after = edge
    return f"{{ rank=same {_quoted(before)} {_quoted(after)} }}"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '\\"')
    return f'"{escaped}"'


def drawn_edges(file: Path) -> set[Edge]:
    """The edges that a drawing shows."""
    titles: Iterable[str] = re.findall(r"<title>(.*?)</title>", file.read_text())
    pairs = (title.partition("&#45;&gt;") for title in titles)
    return {(html.unescape(one), html.unescape(two)) for one, arrow, two in pairs if arrow}


if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name in DIAGRAMS:
        (PLACE / f"{name}.svg").write_text(svg(name))
