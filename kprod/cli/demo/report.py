"""The output of the demo: progress bars while it runs, and then the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
from rich.table import Table

from kprod.cli.demo.flights import Tally
from kprod.cli.demo.writers import Written
from kprod.cli.figures import EMBEDDED, cores
from kprod.version import VERSION
from kprod_ext.peer_text import escaped


class Screen:
    """Prints lines and progress bars on one console. For one thread only."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        """Print one line without markup and without wrapping, so that it can be copied."""
        self.console.print(escaped(text), markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def bar(self, title: str, total: int, *, before: str = "") -> Iterator[Callable[[int], None]]:
        """A progress bar. The block calls the yielded function with the number of records done.

        ``before`` is shown in place of the title until the first record is done.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was sent, what was read back, and the speed."""

    flights: int
    written: Written
    tally: Tally
    verify_seconds: float
    embedded: bool

    @property
    def exact(self) -> bool:
        """True if every flight was acknowledged, and came back once, unchanged and in order."""
        return self.tally.exact and self.written.records == self.flights

    def show(self, screen: Screen) -> None:
        """Print the figures and the verdict. On a terminal, the figures are a table."""
        rows = [*self._counts(), *self._partitions(), *self._speeds()]
        if screen.console.is_terminal:
            screen.console.print(_table(rows))
        else:
            for name, value in rows:
                screen.say(f"{name:<22} {value:>14}")
        for line in self.limits():
            screen.say(line)
        screen.say(self.verdict())

    def verdict(self) -> str:
        """The result in one sentence."""
        if self.exact:
            return "Exact: every flight is in the topic once, unchanged, in order per aircraft."
        return "NOT exact: the topic does not hold every flight once, unchanged and in order."

    def limits(self) -> list[str]:
        """Sentences about what the measured time includes."""
        if self.written.tasks:
            way = (
                f"{self.written.tasks} Spark tasks: reading, sorting, JSON and the start of Python"
                " workers are in it"
            )
        else:
            made = "in which Python makes the JSON of every flight"
            way = f"one thread, {made}; {self.written.options}"
        where = f"an {EMBEDDED}, on the same cores" if self.embedded else "a cluster of yours"
        return [
            f"That was written by {way}.",
            f"It went to {where}; kprod {VERSION}; {cores()} cores.",
            "How fast the producer is by itself: kprod perf.",
        ]

    def _counts(self) -> list[tuple[str, str]]:
        tally = self.tally
        counts = {
            "records in": self.flights,
            "acknowledged": self.written.records,
            "read back": tally.read_back,
            "missing": tally.missing,
            "duplicated": tally.duplicated,
            "altered": tally.altered,
            "out of order per key": tally.out_of_order,
        }
        return [(name, f"{count:,}") for name, count in counts.items()]

    def _partitions(self) -> list[tuple[str, str]]:
        return [
            (f"in partition {partition}", f"{count:,}")
            for partition, count in sorted(self.tally.by_partition.items())
        ]

    def _speeds(self) -> list[tuple[str, str]]:
        seconds = max(self.written.seconds, 1e-9)
        return [
            ("written in", f"{seconds:.1f} s"),
            ("records per second", f"{self.written.records / seconds:,.0f}"),
            ("MB/s", f"{self.written.bytes / seconds / 1e6:.1f}"),
            ("verified in", f"{self.verify_seconds:.1f} s"),
        ]


def _table(rows: list[tuple[str, str]]) -> Table:
    table = Table(show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, value)
    return table
