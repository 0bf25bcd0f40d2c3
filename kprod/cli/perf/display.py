"""The output of ``kprod perf``: its progress, and the figures at the end."""

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
from rich.table import Table

from kprod.cli.figures import EMBEDDED, PERCENTILES
from kprod.cli.perf.measurement import Measured

SHOWN_EVERY = 0.25
"""Seconds. Drawing costs CPU time in the process that is measured."""


@contextmanager
def live_progress(console: Console, records: int) -> Iterator[Callable[[int], None]]:
    """A bar with the current rate. Call it with the number of queued records. For terminals only.

    The caller's thread draws it. It is removed when the block ends.
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

        def advance(queued: int) -> None:
            nonlocal shown_at, shown
            now = time.perf_counter()
            if now - shown_at >= SHOWN_EVERY:
                rate = (queued - shown) / (now - shown_at)
                progress.update(task, completed=queued, rate=rate)
                progress.refresh()
                shown_at, shown = now, queued

        yield advance


MILLION = 1e6


def table_of(measured: Measured) -> Table:
    """A table with one figure per line."""
    table = Table("figure", show_header=True, title=_title(measured), title_justify="left")
    table.add_column("measured", justify="right", overflow="fold")
    for name, figure in rows(measured):
        table.add_row(name, figure)
    return table


def rows(measured: Measured) -> Iterator[tuple[str, str]]:
    """The figures in display order: a label, and the value with its unit."""
    yield "throughput", f"{measured.records_per_second:,.0f} records/s"
    yield "", f"{measured.megabytes_per_second:,.1f} MB/s of values"
    yield "CPU time", f"{measured.cpu_us_per_record:,.2f} us/record"
    yield "", f"{_busy(measured):.0%} of one core"
    for name in PERCENTILES:
        yield f"latency {name}", _milliseconds(measured, name)
    yield "peak memory (RSS)", f"{measured.peak_rss_bytes / MILLION:,.0f} MB"
    yield "batches", f"{measured.batches:,}"
    yield "", f"{measured.records_per_batch:,.1f} records, {measured.batch_bytes:,.0f} bytes each"
    yield "requests", f"{measured.requests:,}"
    yield "", f"{measured.request_latency_ms:,.1f} ms on average"
    yield "records retried", f"{measured.retries:,}"
    yield "records failed", f"{measured.failed:,}"
    if measured.pending:
        yield "records without outcome", f"{measured.pending:,}"
    yield from _circumstances(measured)


def _circumstances(measured: Measured) -> Iterator[tuple[str, str]]:
    yield "limited by", measured.limited_by
    yield "kprod", measured.version
    yield "sent by", f"{measured.call}, {measured.options}"
    if measured.broker_cpu_seconds is None:
        yield "to", f"a cluster of yours, from {measured.cores} cores"
    else:
        share = measured.broker_cpu_seconds / (measured.seconds or 1e-9)
        yield "to", f"an {EMBEDDED}, on the same {measured.cores} cores; it used {share:.0%} of one"


def _title(measured: Measured) -> str:
    early = " until it was stopped" if measured.interrupted else ""
    return f"{measured.records:,} records in {measured.seconds:,.2f} s{early}"


def _busy(measured: Measured) -> float:
    return measured.cpu_seconds / measured.seconds if measured.seconds else 0.0


def _milliseconds(measured: Measured, name: str) -> str:
    if name not in measured.latency_ms:
        return f"too few samples ({measured.latency_samples:,})"
    return f"{measured.latency_ms[name]:,.2f} ms"
