"""Measures every way on the same rows: ``python -m benchmarks.spark --jars FOLDER``.

The jars are ``spark-sql-kafka-0-10_2.13`` and what it needs, for the Spark that is installed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.sink.sink_process import SinkProcess
from benchmarks.spark.ways import TUNED, WAYS

QUESTION = "How long does a DataFrame take to Kafka, and at what cost, by each way?"
CORES = 2
TASKS = 4
ROUNDS = 3
PARTITIONS = 12
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--name", default="spark")
    given = parser.parse_args()
    origin = provenance()
    chosen = {name: WAYS[name] for name in given.ways.split(",")}
    with tempfile.TemporaryDirectory() as folder, SinkProcess(PARTITIONS) as sink:
        spark = _session(given.jars, Path(folder))
        frame = _frame(spark, Path(folder), given.rows, given.size)
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
        for number in range(given.rounds + 1):  # the first warms up
            for name, way in chosen.items():
                turn = _turn(way, frame, sink)
                print(number, name, turn, file=sys.stderr, flush=True)
                if number:
                    turns[name].append(turn)
        spark.stop()
    figures = {name: _medians(taken) for name, taken in turns.items()}
    for name, median in figures.items():
        print(f"{name:<34}", {k: round(v, 2) for k, v in median.items()})
    settings = {"rows": given.rows, "value_bytes": given.size, "tuned": TUNED, "tasks": TASKS}
    settings |= {"master": f"local[{CORES}]", "rounds": given.rounds, "partitions": PARTITIONS}
    write_result(
        given.name,
        question=QUESTION,
        command=command_line("benchmarks.spark"),
        origin=origin,
        settings=settings,
        figures=figures,
    )


def _session(jars: Path, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().master(f"local[{CORES}]").appName("benchmark")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
        "spark.local.dir": str(folder),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _frame(spark: Any, folder: Path, rows: int, size: int) -> Any:
    path = str(folder / "rows")
    filler = f"substr(repeat(sha2(cast(id as string), 512), {size // 128 + 1}), 1, {size})"
    frame = spark.range(0, rows, 1, TASKS).selectExpr(
        "cast(id % 100000 as string) as key", f"cast({filler} as binary) as value"
    )
    frame.write.parquet(path)
    stored = spark.read.parquet(path)
    stored.count_of_rows = rows
    return stored


def _turn(way: Any, frame: Any, sink: SinkProcess) -> dict[str, float]:
    before, cpu, sink_cpu = sink.counts(), _cpu_seconds(), sink.cpu_seconds()
    started = time.perf_counter()
    way(frame, sink.bootstrap_servers)
    seconds = time.perf_counter() - started
    after, sink_cpu = sink.counts(), sink.cpu_seconds() - sink_cpu
    counted = {name: after[name] - before[name] for name in ("requests", "batch_bytes", "records")}
    return {
        "seconds": seconds,
        "cpu_seconds": _cpu_seconds() - cpu - sink_cpu,  # the sink is a child, too
        "sink_cpu_seconds": sink_cpu,
        **counted,
    }


def _cpu_seconds() -> float:
    """Of this process, the JVM, and Spark's Python workers, those that have ended among them."""
    parents = {}
    times = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        times[pid] = sum(map(int, fields[11:15]))
    me = os.getpid()

    def ours(pid: int) -> bool:
        while pid > 1 and pid != me:
            pid = parents.get(pid, 0)
        return pid == me

    return sum(ticks for pid, ticks in times.items() if ours(pid)) / TICKS


def _medians(turns: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


if __name__ == "__main__":
    main()
