"""Measures every way of writing a DataFrame, line by line: ``python -m benchmarks.spark``.

    python -m benchmarks.spark --jars FOLDER [--rows-of KIND ...] [--broker NAME ...] [--rounds N]
    python -m benchmarks.spark --jars FOLDER --conf spark.python.unix.domain.socket.enabled=true

A line is one kind of rows and one broker, and all ways take turns in it. The jars are
``spark-sql-kafka-0-10_2.13`` and what it needs, for the Spark that is installed: ``pom.xml``, which
is beside this file, names them. Stores ``results/spark.json``, after every line; a run that is not
whole goes to ``spark-quick.json``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measured_process import ROOT, TurnFailed
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.spark.brokers import BROKERS, PARTITIONS, Broker, cpu_seconds_since, cpu_ticks
from benchmarks.spark.goals import judged
from benchmarks.spark.rows import KINDS, Rows, stored_rows
from benchmarks.spark.ways import TUNED, WAYS, WRITE_NOTHING, Way
from benchmarks.spread import spread_of

QUESTION = "How long does a DataFrame take to Kafka, and at what cost, by each way?"
CORES = 2
ROUNDS = 5
FIGURES = ("seconds", "cpu_seconds", "broker_cpu_seconds", "requests_per_gb")


def main() -> None:
    """Measure, print, store."""
    given = _parser().parse_args()
    origin = provenance()
    origin["versions"]["pyspark"] = _pyspark_version()
    chosen = (given.rows_of, given.broker, given.ways, given.rows, given.conf)
    whole = chosen == (list(KINDS), list(BROKERS), list(WAYS), None, {})
    figures: dict[str, Any] = {}
    settings = {"master": f"local[{CORES}]", "rounds": given.rounds, "partitions": PARTITIONS}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, name in itertools.product(given.rows_of, given.broker):
            figures[f"{kind} to {name}"] = _line(given, kind, name, Path(scratch))
            file = write_result(
                given.name or ("spark" if whole else "spark-quick"),
                question=QUESTION,
                command=command_line("benchmarks.spark"),
                origin=origin,
                settings=settings | {"tuned": TUNED, "conf": given.conf},
                figures=figures,
            )
    print(f"\nStored in {file.relative_to(ROOT)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark")
    parser.add_argument("--jars", type=Path, required=True, help="folder with Spark's Kafka sink")
    parser.add_argument("--rows-of", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument(
        "--broker", nargs="+", choices=BROKERS, default=list(BROKERS), metavar="NAME"
    )
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--rows", type=int, help="of each kind; by default as many as is usual")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--name", help="of the file of results")
    parser.add_argument(
        "--conf",
        action=_Conf,
        default={},
        metavar="NAME=VALUE",
        help="a setting of the session, of all ways; may be repeated",
    )
    return parser


class _Conf(argparse.Action):
    """Collects NAME=VALUE in a dict."""

    def __call__(self, parser: Any, given: Any, value: Any, option: Any = None) -> None:
        name, equals, text = value.partition("=")
        if not equals:
            parser.error(f"{option} {value}: NAME=VALUE is expected")
        given.conf = {**given.conf, name: text}


def _pyspark_version() -> str:
    import pyspark

    return str(pyspark.__version__)


def _session(jars: Path, folder: Path, conf: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)  # for the workers, which may not have kprod installed
    builder = SparkSession.Builder().master(f"local[{CORES}]").appName("benchmark")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(str(jar.resolve()) for jar in sorted(jars.glob("*.jar"))),
        "spark.local.dir": str(folder),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in (settings | conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _line(given: argparse.Namespace, kind: str, name: str, scratch: Path) -> dict[str, Any]:
    """One line, measured and told. Spark ends before the broker does, which its workers know."""
    line = f"{kind} to {name}"
    with BROKERS[name]() as broker:
        spark = _session(given.jars, scratch, given.conf)
        try:
            rows = stored_rows(spark, kind, given.rows, scratch)
            print(f"\n{line}: {rows.count:,} rows, {rows.bytes / 1e6:,.0f} MB", flush=True)
            turns = _turns(rows, broker, given.ways, given.rounds, line)
        finally:
            spark.stop()
    figures = _figures(rows, turns)
    _tell(figures)
    return figures


def _turns(
    rows: Rows, broker: Broker, ways: list[str], rounds: int, line: str
) -> dict[str, list[dict[str, float]]]:
    """The turns of every way: one in each round, of which the first warms up and is not kept."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in ways if number % 2 else ways[::-1]:
            expected = 0 if name in WRITE_NOTHING else rows.count
            turn = _turn(WAYS[name], rows, broker, expected)
            told = {figure: round(value, 2) for figure, value in turn.items()}
            print(line, "round", number, name, told, file=sys.stderr, flush=True)
            if number:
                taken[name].append(turn)
    return taken


def _turn(way: Way, rows: Rows, broker: Broker, expected: int) -> dict[str, float]:
    """One way's figures. Raises TurnFailed when other records came than were written."""
    topic = broker.begin()
    ticks, broker_cpu = cpu_ticks(os.getpid()), broker.cpu_seconds()
    started = time.perf_counter()
    way(rows, broker.bootstrap_servers, topic)
    seconds = time.perf_counter() - started
    cpu = cpu_seconds_since(ticks, os.getpid())
    broker_cpu = broker.cpu_seconds() - broker_cpu
    counted: dict[str, float] = dict(broker.end())
    if counted["records"] != expected:
        raise TurnFailed(f"{counted['records']:,} records came, {expected:,} were written")
    measured = {"seconds": seconds, "cpu_seconds": cpu - broker_cpu}  # the broker is a child, too
    if "requests" in counted:
        counted["requests_per_gb"] = counted["requests"] / rows.bytes * 1e9
    return measured | {"broker_cpu_seconds": broker_cpu} | counted


def _figures(rows: Rows, turns: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    return {
        "rows": rows.count,
        "megabytes": round(rows.bytes / 1e6, 1),
        "goals": judged(turns),
        "ways": {
            name: {
                figure: spread_of([turn[figure] for turn in taken]).as_json() for figure in taken[0]
            }
            for name, taken in turns.items()
        },
        "rounds": turns,
    }


def _tell(line: dict[str, Any]) -> None:
    """Print the medians of every way, and what became of the goals."""
    print(f"{'':<28}" + "".join(f"{figure:>20}" for figure in FIGURES))
    for name, figures in line["ways"].items():
        cells = [figures[figure]["median"] if figure in figures else "-" for figure in FIGURES]
        print(f"{name:<28}" + "".join(f"{cell:>20}" for cell in cells))
    for goal in line["goals"]:
        bound = next((f"{name} {goal[name]}" for name in ("least", "most") if name in goal), "")
        verdict = ("reached" if goal["reached"] else "MISSED") if bound else ""
        ratio = goal["ratio"]
        span = f"({ratio['min']} to {ratio['max']})"
        print(f"{goal['goal']:<68}{ratio['median']:>8} {span:<20} {bound:<10} {verdict}")


if __name__ == "__main__":
    main()
