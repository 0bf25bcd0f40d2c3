"""What do batches gain that go on filling, and what do they take? Default options, in turns.

    python -m benchmarks.growth [--rounds N] [--only NAME ...]

``grown`` has the default ``batch_max_size``, ``bounded`` ``batch_size``: batches as Kafka's.
A line with a delay of 20 ms stands between producer and receiver in ``delay``. Stores
``results/growth.json``; a partial run goes to ``growth-quick.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from benchmarks.growth.turn import GrowthTurn
from benchmarks.measured_process import figures_of
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.sink.sink_process import ROOT, SinkProcess
from benchmarks.spread import significant, spread_of

ROUND_MS = 20
BATCH_SIZE = 16_384
GROWN, BOUNDED = "grown", "bounded"
MANY = 10_000
ROOM_FOR_ALL = 256 * 1024 * 1024
"""``buffer_memory`` in which 10,000 batches are open at the same time."""

WORKLOADS = {
    "delay": GrowthTurn(workload="plain", records=150_000, partitions=1, size=1_000),
    "ten-million": GrowthTurn(workload="plain", records=10_000_000, partitions=6),
    "one-each": GrowthTurn(
        workload="one-each", records=MANY, partitions=MANY, buffer_memory=ROOM_FOR_ALL
    ),
    "uneven": GrowthTurn(workload="uneven", records=10_000_000, partitions=MANY),
}
FEWER = {("delay", BOUNDED): 10}
"""Sides that send so many times fewer records: they take about as long."""
ONCE = ("uneven",)
"""Taken once, however many rounds there are: a turn takes minutes, and asks whether it ends."""


def main() -> int:
    """Run what the command line asks for, and store it; the exit code."""
    options = _parser().parse_args()
    origin = provenance()
    chosen = options.only or list(WORKLOADS)
    figures = {name: _measured(name, 1 if name in ONCE else options.rounds) for name in chosen}
    file = write_result(
        "growth-quick" if options.only else "growth",
        question="What do batches gain that go on filling, and how much memory do they take?",
        command=command_line("benchmarks.growth"),
        origin=origin,
        settings={"rounds": options.rounds, "round_ms": ROUND_MS, "batch_size": BATCH_SIZE},
        figures=figures,
    )
    print(f"Stored in {file.relative_to(ROOT)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="NAME")
    return parser


def _measured(name: str, rounds: int) -> dict[str, Any]:
    turns = {
        GROWN: WORKLOADS[name],
        BOUNDED: replace(
            WORKLOADS[name],
            batch_max_size=BATCH_SIZE,
            records=WORKLOADS[name].records // FEWER.get((name, BOUNDED), 1),
        ),
    }
    taken: dict[str, list[dict[str, float]]] = {side: [] for side in turns}
    for number in range(rounds):
        for side in turns if number % 2 == 0 else list(turns)[::-1]:
            taken[side].append(_taken(turns[side], delayed=name == "delay"))
            print(f"{name}, round {number + 1}, {side}: {_told(taken[side][-1])}", flush=True)
    pairs = list(zip(taken[GROWN], taken[BOUNDED], strict=True))
    return {
        "turns": {side: turn.as_json() for side, turn in turns.items()},
        "ratios": {
            figure: spread_of(
                [grown[figure] / bounded[figure] for grown, bounded in pairs]
            ).as_json()
            for figure in ("megabytes_per_second", "cpu_us_per_record", "peak_rss_mb")
        },
        "sides": {
            side: {figure: spread_of([one[figure] for one in ones]).as_json() for figure in ones[0]}
            for side, ones in taken.items()
        },
    }


def _taken(turn: GrowthTurn, *, delayed: bool) -> dict[str, float]:
    with ExitStack() as stack:
        line = stack.enter_context(_line()) if delayed else None
        sink = stack.enter_context(
            SinkProcess(turn.partitions, advertised=line.port if line else None)
        )
        address = sink.bootstrap_servers
        if line is not None:
            line.lead_to(sink.port)
            address = f"127.0.0.1:{line.port}"
        command = [sys.executable, "-m", "benchmarks.growth.turn", json.dumps(turn.as_json())]
        found = figures_of([*command, address])
        counts = sink.counts()
    assert counts["records"] == turn.records + 1, f"the sink counted {counts}"
    per_batch = counts["records"] / counts["batches"]
    return {**found, "records_per_batch": per_batch, "requests": counts["requests"]}


class _Line:
    """A delay proxy in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.port = int(process.stdout.readline())

    def lead_to(self, port: int) -> None:
        """Connect who comes to ``port``."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{port}\n")
        self._process.stdin.flush()


@contextmanager
def _line() -> Iterator[_Line]:
    command = [sys.executable, "-m", "benchmarks.growth.delay_proxy", str(ROUND_MS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield _Line(process)
        finally:
            process.kill()


def _told(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {significant(value)}" for name, value in figures.items())


if __name__ == "__main__":
    sys.exit(main())
