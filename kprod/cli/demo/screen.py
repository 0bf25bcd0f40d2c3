"""What the demo shows while it runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Screen:
    """Lines and bars on one console. Thread: one."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        """One line, as it is: no markup, never wrapped, so that it can be copied."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def bar(self, title: str, total: int, *, before: str = "") -> Iterator[Callable[[int], None]]:
        """A bar for the block, which tells it how far it has come, in records.

        ``before`` stands in the place of the title until the first record is there.
        """
        if not self.console.is_terminal:
            self.say(f"{title}: {total:,} records ...")
            yield lambda done: None
            return
        with Progress(*_columns(), console=self.console) as progress:
            task = progress.add_task(before or title, total=total)

            def advance(done: int) -> None:
                shown = title if done else before or title
                progress.update(task, completed=min(done, total), description=shown)

            yield advance
            progress.update(task, completed=total)


def _columns() -> tuple[ProgressColumn, ...]:
    return (
        SpinnerColumn(),
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
