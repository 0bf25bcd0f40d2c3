"""Profiles as tables: nanoseconds per record, by thread and kind of work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from benchmarks.profiles.kinds import KINDS

WALL = "wall"


def rows(profiles: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A row for each thread: whose, which, the kinds of work, together; then the time on the wall.

    The CPU time of all threads, shared by as many processors as there are, is the least that the
    wall time can be.
    """
    lines = []
    for side, threads in profiles.items():
        label = side
        for thread, kinds in threads.items():
            if thread == WALL or not any(kinds.values()):
                continue
            cells = [_figure(kinds.get(kind, 0)) for kind in KINDS]
            lines.append([label, thread, *cells, _figure(sum(kinds.values())), ""])
            label = ""
        lines[-1][-1] = _figure(threads[WALL][WALL])
    return lines


HEAD = ["", "thread", *KINDS, "CPU together", "wall"]


def profile_table(profiles: Mapping[str, Mapping[str, Any]]) -> Table:
    """For a terminal."""
    table = Table(*HEAD, title="Nanoseconds per record", title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows(profiles):
        table.add_row(*row)
    return table


def _figure(nanoseconds: float) -> str:
    if nanoseconds < 0.05:
        return "-"
    return f"{nanoseconds:.1f}" if nanoseconds < 10 else f"{nanoseconds:,.0f}"
