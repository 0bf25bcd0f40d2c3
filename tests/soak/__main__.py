"""Hours of a producer's life in turns, and a gate on what its process holds.

    python -m tests.soak --hours N [--rate N] [--seconds N] [--without-spark]

Three embedded brokers, the producers and a Spark driver are processes of their own. In turns, each
on a topic of its own: steady load, a producer made and closed, leaders that move, nodes that
restart, a crash of all, logins that run out, certificates that are replaced, transactions, and a
micro-batch of Spark. A consumer that is not ours finds each record once and in order; memory,
descriptors, threads and latency must not grow (``trend.py``). Needs Java for Spark.

Stores ``soak.json`` below ``benchmarks/results`` when it ran for three hours, else
``soak-quick.json``. The exit code is 1 when something grows or the
run was too short to tell; what breaks a promise ends it at once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.spread import significant
from tests.soak.brokers import Brokers
from tests.soak.command_process import ROOT, CommandProcess
from tests.soak.load import Load
from tests.soak.trend import Measure, Point, Verdict, judge
from tests.soak.turns import Turns
from tests.support.held_resources import HeldResources, held_resources

FOLDER = ROOT / "build" / "soak"
FULL_HOURS = 3.0
WARM_UP = 0.2
"""Of the cycles: caches fill, and arenas reach the size that they keep."""
MEBIBYTE = 2**20
MEASURES = {
    "memory": Measure("resident memory", "MiB", negligible=1.0),
    "files": Measure("open descriptors", "", negligible=0.5),
    "threads": Measure("threads", "", negligible=0.5),
    "heap": Measure("heap in use", "MiB", negligible=0.2),
    "p50": Measure("latency, median", "ms", negligible=1.0),
    "p99": Measure("latency, 99th percentile", "ms", negligible=10.0),
}
"""``heap`` is what is in use after each cycle. Resident memory also holds what the allocator keeps,
so it tells of 20 KiB lost in a cycle only after hours; of these 0.2 MiB are 3 KiB. Latencies are
those of the steady turns."""


class Soak:
    """The processes, the cycles of turns, and what was seen in each."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self._options = options
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        output = FOLDER / "output.txt"
        output.write_text("")
        self.totals: dict[str, float] = {}
        self.cycles = 0
        self._points: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))

        def process(make: Callable[..., Any], **arguments: Any) -> CommandProcess:
            return stack.enter_context(CommandProcess(make, arguments, output))

        brokers = process(Brokers, folder=folder)
        addresses = brokers.ask("options")
        servers = addresses["plain"]["bootstrap_servers"]
        self._load = process(Load, **addresses)
        self._tell_heap = {"producers": self._load, "brokers": brokers}
        self._tell_held = {
            name: partial(held_resources, process.pid) for name, process in self._tell_heap.items()
        }
        spark = None
        if not options.without_spark:
            from tests.soak.spark_batches import SparkBatches, python_family

            spark = process(SparkBatches, folder=folder, servers=servers)
            self._tell_held["Spark's Python"] = partial(python_family, spark.pid)
        self.turns = Turns(
            self._load, brokers, spark, servers, seconds=options.seconds, rate=options.rate
        )
        self._began = time.monotonic()

    @property
    def _hours(self) -> float:
        return (time.monotonic() - self._began) / 3600

    def run(self) -> None:
        """Whole cycles until the time is over."""
        while self._hours < self._options.hours:
            held: dict[str, list[HeldResources]] = {name: [] for name in self._tell_held}
            for kind in self.turns.kinds:
                self.turns.take(kind)
                for name, tell in self._tell_held.items():
                    held[name].append(tell())
            self._end_cycle(held)
            print(
                f"{self._hours:.2f} h: {self.cycles} cycles, {self.turns.records:,} records",
                flush=True,
            )
        self.totals = self._load.ask("close")

    def _end_cycle(self, held: dict[str, list[HeldResources]]) -> None:
        """Note a point of each measure: the median of what was held after the turns."""
        self.cycles += 1
        for process, samples in held.items():
            memory, files, threads = map(statistics.median, zip(*samples, strict=True))
            self._note(process, memory=memory / MEBIBYTE, files=files, threads=threads)
        for name, process_of in self._tell_heap.items():
            self._note(name, heap=process_of.ask("heap") / MEBIBYTE)
        quantiles = statistics.quantiles(self.turns.milliseconds, n=100)
        self._note("producers", p50=quantiles[49], p99=quantiles[98])

    def _note(self, process: str, **values: float) -> None:
        for measure, value in values.items():
            self._points[process][measure].append(Point(self._hours, value))

    def verdicts(self) -> dict[str, dict[str, Verdict]]:
        """By process and measure; without the cycles of the warm-up."""
        first = int(WARM_UP * self.cycles)
        return {
            process: {name: judge(MEASURES[name], found[first:]) for name, found in points.items()}
            for process, points in self._points.items()
        }


def main() -> int:
    """Run what the command line asks for, store it, and tell; the exit code."""
    options = _parser().parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    origin = provenance()
    with ExitStack() as stack:
        soak = Soak(options, stack)
        soak.run()
    verdicts = soak.verdicts()
    whole = options.hours >= FULL_HOURS and not options.without_spark
    stored = write_result(
        "soak" if whole else "soak-quick",
        question="Does a producer that runs for hours hold more and more, or become slower?",
        command=command_line("tests.soak"),
        origin=origin,
        settings=vars(options) | {"turns": list(soak.turns.kinds), "warm_up": WARM_UP},
        figures=_figures(soak, verdicts),
    )
    print(f"Stored in {stored.relative_to(ROOT)}")
    for process, measures in verdicts.items():
        for verdict in measures.values():
            print(f"{process}, {verdict.measure.name}: {verdict}")
    judged = [verdict for measures in verdicts.values() for verdict in measures.values()]
    return int(any(verdict.grows or not verdict.is_decided for verdict in judged))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--hours", type=float, default=FULL_HOURS)
    parser.add_argument("--rate", type=float, default=500.0, help="records per second")
    parser.add_argument("--seconds", type=float, default=6.0, help="of load in each turn")
    parser.add_argument("--without-spark", action="store_true")
    return parser


def _figures(soak: Soak, verdicts: dict[str, dict[str, Verdict]]) -> dict[str, Any]:
    return {
        "cycles": soak.cycles,
        "records": soak.turns.records,
        "producers": soak.totals,
        "verdicts": {
            process: {
                name: {
                    "verdict": str(verdict),
                    "points": [[significant(each) for each in point] for point in verdict.points],
                }
                for name, verdict in measures.items()
            }
            for process, measures in verdicts.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
