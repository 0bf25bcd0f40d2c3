"""What kprod perf shows while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

SHOWN_EVERY = 0.25
"""Seconds. Drawing is CPU time of the process that is measured."""


@contextmanager
def live_progress(console: Console, records: int) -> Iterator[Callable[[int], None]]:
    """A bar with the rate of the moment; told how many records are queued. Nothing off a terminal.

    Drawn by whoever tells it, not by a thread of its own, and gone when the block ends.
    """
    if not console.is_terminal:
        yield lambda queued: None
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>12,.0f} records/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=records, rate=0.0)
        shown_at, shown = time.perf_counter(), 0

        def tell(queued: int) -> None:
            nonlocal shown_at, shown
            now = time.perf_counter()
            if now - shown_at >= SHOWN_EVERY:
                rate = (queued - shown) / (now - shown_at)
                progress.update(task, completed=queued, rate=rate)
                progress.refresh()
                shown_at, shown = now, queued

        yield tell
