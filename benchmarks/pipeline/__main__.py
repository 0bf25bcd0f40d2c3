"""What does a record cost from ``send`` to its acknowledgement, and what makes it cost more?

    python -m benchmarks.pipeline            # 3 rounds; stores results/pipeline.json
    python -m benchmarks.pipeline --quick    # one short round, stored as pipeline-quick

Every case is a ``kprod perf`` in a process of its own, with kprod's default settings unless the
case says otherwise; all cases in turn, then again. With them runs what the machine can do: the same
bytes by bare ``sendmsg`` to the same sink, and by ``memcpy``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.acceptance.tables import FIGURES, figure
from benchmarks.flight_events import flight_events
from benchmarks.measured_process import TurnFailed
from benchmarks.pipeline.case import Case
from benchmarks.pipeline.cases import cases
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.rivals.comparison import take
from benchmarks.rivals.turn import Turn
from benchmarks.spread import Spread, spread_of

KEPT = (*FIGURES, "batch_bytes", "requests", "retries", "request_latency_ms")
QUICK_SCALE, ROUNDS = 0.25, 3
LIMIT_RECORDS = 10_000_000
LIMIT_BATCHES = (16_384, 131_072)
WIDTH = 150

Taken = dict[tuple[str, str], list[dict[str, Any]]]


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS}, or 1 if quick")
    parser.add_argument("--quick", action="store_true", help="short cases: not for quoting")
    options = parser.parse_args()
    scale = QUICK_SCALE if options.quick else 1.0
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    origin = provenance()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kprod-") as folder:
        flights = Path(folder) / "flights"
        flights.write_bytes(b"\n".join(flight_events()))
        todo = _measurements(cases(flights, scale), scale)
        try:
            taken = _take_all(todo, rounds, console, problems)
        except KeyboardInterrupt:
            console.print("Stopped: nothing is stored.")
            return 130
    spreads = {key: _spreads(measured) for key, measured in taken.items() if measured}
    for table in _tables(spreads):
        console.print(table)
    file = write_result(
        "pipeline-quick" if options.quick else "pipeline",
        question=(__doc__ or "").splitlines()[0],
        command=command_line("benchmarks.pipeline"),
        origin=origin,
        settings={"rounds": rounds, "scale": scale},
        figures={"cases": _stored(spreads), "problems": problems},
    )
    console.print(f"Stored in {os.path.relpath(file)}")
    return 1 if problems else 0


def _measurements(
    chosen: Sequence[Case], scale: float
) -> dict[tuple[str, str], Callable[[], dict[str, Any]]]:
    """What is measured in a round, by what is varied and how."""
    todo: dict[tuple[str, str], Callable[[], dict[str, Any]]] = {
        (case.varied, case.name): case.take for case in chosen
    }
    for client in ("raw loopback", "memory copy"):
        for batch_size in LIMIT_BATCHES:
            turn = Turn(client=client, records=int(LIMIT_RECORDS * scale), batch_size=batch_size)
            todo["limit", f"{client}, batches of {batch_size:,} B"] = _limit(turn)
    return todo


def _limit(turn: Turn) -> Callable[[], dict[str, Any]]:
    return lambda: take(turn)


def _take_all(
    todo: Mapping[tuple[str, str], Callable[[], dict[str, Any]]],
    rounds: int,
    console: Console,
    problems: list[str],
) -> Taken:
    taken: Taken = {key: [] for key in todo}
    for number in range(1, rounds + 1):
        for key, measure in todo.items():
            console.print(f"round {number} of {rounds}, {key[0]}: {key[1]}", style="dim")
            try:
                taken[key].append(measure())
            except (TurnFailed, RuntimeError, OSError) as failure:
                problems.append(f"round {number}, {key[0]}: {key[1]}: {failure}")
                console.print(f"not measured: {failure}", style="bold", markup=False)
    return taken


def _spreads(rounds: Sequence[dict[str, Any]]) -> dict[str, Spread]:
    for one in rounds:
        if "peak_rss_bytes" in one:
            one["peak_rss_mb"] = one["peak_rss_bytes"] / 1e6
    names = [name for name in KEPT if all(name in one for one in rounds)]
    return {name: spread_of([one[name] for one in rounds]) for name in names}


def _stored(spreads: Mapping[tuple[str, str], dict[str, Spread]]) -> dict[str, Any]:
    stored: dict[str, dict[str, Any]] = {}
    for (varied, name), found in spreads.items():
        figures = {one: spread.as_json() for one, spread in found.items()}
        stored.setdefault(varied, {})[name] = figures
    return stored


def _tables(spreads: Mapping[tuple[str, str], dict[str, Spread]]) -> Sequence[Table]:
    """Medians, and for the rate the least and the most."""
    tables: dict[str, Table] = {}
    shown = [name for name in FIGURES if any(name in found for found in spreads.values())]
    for (varied, name), found in spreads.items():
        if varied not in tables:
            tables[varied] = Table(varied)
            for column in (*(FIGURES[name] for name in shown), "records/s, min to max"):
                tables[varied].add_column(column, justify="right")
        medians = [figure(found[one].median) if one in found else "-" for one in shown]
        rate = found["records_per_second"]
        tables[varied].add_row(name, *medians, f"{figure(rate.min)} to {figure(rate.max)}")
    return list(tables.values())


if __name__ == "__main__":
    sys.exit(main())
