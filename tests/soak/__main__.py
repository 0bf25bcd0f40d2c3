"""Runs producers for hours, and checks that their processes do not grow.

    python -m tests.soak --hours N [--rate N] [--seconds N] [--without-spark]

Three embedded brokers, the producers and a Spark driver are separate processes. The phases of a
cycle, each with its own topic: steady load, short-lived producers, leader changes, restarts of
nodes, a crash of all, expiring logins, new certificates, transactions, and a micro-batch of Spark.
An independent consumer must find each record once and in order; memory, descriptors, threads and
latency must not grow (``trend.py``). Needs Java for Spark.

Stores ``soak.json`` below ``benchmarks/results`` after three hours, else ``soak-quick.json``. The
exit code is 1 if something grows or the run was too short to decide; a wrong record ends the run.
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
from tests.soak.phases import Phases
from tests.soak.trend import Measure, Point, Result, assess
from tests.support.held_resources import HeldResources, held_resources

FOLDER = ROOT / "build" / "soak"
FULL_HOURS = 3.0
WARM_UP = 0.2
"""The share of cycles that are ignored, while caches fill."""
MEBIBYTE = 2**20
MEASURES = {
    "memory": Measure("resident memory", "MiB", negligible=1.0),
    "files": Measure("open descriptors", "", negligible=0.5),
    "threads": Measure("threads", "", negligible=0.5),
    "heap": Measure("heap in use", "MiB", negligible=0.2),
    "p50": Measure("latency, median", "ms", negligible=1.0),
    "p99": Measure("latency, 99th percentile", "ms", negligible=10.0),
}
"""``heap`` is measured after each cycle, without free memory that the allocator keeps: it shows a
leak of 3 KiB per cycle, resident memory only one of 20 KiB. Latencies are those of ``steady``."""


class Soak:
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
        self._heaps = {"producers": self._load, "brokers": brokers}
        self._resources = {
            name: partial(held_resources, process.pid) for name, process in self._heaps.items()
        }
        spark = None
        if not options.without_spark:
            from tests.soak.spark_batches import SparkBatches, python_family

            spark = process(SparkBatches, folder=folder, servers=servers)
            self._resources["Spark's Python"] = partial(python_family, spark.pid)
        self.phases = Phases(
            self._load, brokers, spark, servers, seconds=options.seconds, rate=options.rate
        )
        self._began = time.monotonic()

    @property
    def _hours(self) -> float:
        return (time.monotonic() - self._began) / 3600

    def run(self) -> None:
        """Run whole cycles until the time is over."""
        while self._hours < self._options.hours:
            held: dict[str, list[HeldResources]] = {name: [] for name in self._resources}
            for kind in self.phases.kinds:
                self.phases.run(kind)
                for name, measure in self._resources.items():
                    held[name].append(measure())
            self._end_cycle(held)
            print(
                f"{self._hours:.2f} h: {self.cycles} cycles, {self.phases.records:,} records",
                flush=True,
            )
        self.totals = self._load.ask("close")

    def _end_cycle(self, held: dict[str, list[HeldResources]]) -> None:
        """Store a point of each measure, by the median over the phases."""
        self.cycles += 1
        for process, samples in held.items():
            memory, files, threads = map(statistics.median, zip(*samples, strict=True))
            self._add(process, memory=memory / MEBIBYTE, files=files, threads=threads)
        for name, process_of in self._heaps.items():
            self._add(name, heap=process_of.ask("heap") / MEBIBYTE)
        quantiles = statistics.quantiles(self.phases.milliseconds, n=100)
        self._add("producers", p50=quantiles[49], p99=quantiles[98])

    def _add(self, process: str, **values: float) -> None:
        for measure, value in values.items():
            self._points[process][measure].append(Point(self._hours, value))

    def results(self) -> dict[str, dict[str, Result]]:
        first = int(WARM_UP * self.cycles)
        return {
            process: {name: assess(MEASURES[name], found[first:]) for name, found in points.items()}
            for process, points in self._points.items()
        }


def main() -> int:
    options = _parser().parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    origin = provenance()
    with ExitStack() as stack:
        soak = Soak(options, stack)
        soak.run()
    results = soak.results()
    whole = options.hours >= FULL_HOURS and not options.without_spark
    stored = write_result(
        "soak" if whole else "soak-quick",
        question="Does a producer that runs for hours hold more and more, or become slower?",
        command=command_line("tests.soak"),
        origin=origin,
        settings=vars(options) | {"turns": list(soak.phases.kinds), "warm_up": WARM_UP},
        figures=_figures(soak, results),
    )
    print(f"Stored in {stored.relative_to(ROOT)}")
    for process, measures in results.items():
        for result in measures.values():
            print(f"{process}, {result.measure.name}: {result}")
    all_results = [result for measures in results.values() for result in measures.values()]
    return int(any(result.grows or not result.is_decided for result in all_results))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--hours", type=float, default=FULL_HOURS)
    parser.add_argument("--rate", type=float, default=500.0, help="records per second")
    parser.add_argument("--seconds", type=float, default=6.0, help="of load in each phase")
    parser.add_argument("--without-spark", action="store_true")
    return parser


def _figures(soak: Soak, results: dict[str, dict[str, Result]]) -> dict[str, Any]:
    return {
        "cycles": soak.cycles,
        "records": soak.phases.records,
        "producers": soak.totals,
        "verdicts": {
            process: {
                name: {
                    "verdict": str(result),
                    "points": [[significant(each) for each in point] for point in result.points],
                }
                for name, result in measures.items()
            }
            for process, measures in results.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
