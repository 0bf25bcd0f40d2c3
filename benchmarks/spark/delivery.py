"""What exactly once costs beside at least once: ``python -m benchmarks.spark.delivery``.

Whole jobs, and micro-batches of a thousand rows, to one Apache Kafka; the ways take turns. Stores
``results/spark-delivery.json``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.measured_process import ROOT
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.spark.brokers import PARTITIONS, Broker, kafka
from benchmarks.spark.rows import synthetic
from benchmarks.spread import spread_of

QUESTION = "What does delivery=exactly_once cost from Spark, in whole jobs and in micro-batches?"
CORES = 2
TASKS = 8
SIZES = {100: 1.0, 1_000: 0.25}
"""Bytes of values, and how many of the rows there are of them."""
BATCH_ROWS = 1_000
SHARDS = 2

WAYS: dict[str, dict[str, Any]] = {
    "at_least_once": {},
    "exactly_once": {"delivery": "exactly_once"},
    "exactly_once, sharded": {"delivery": "exactly_once", "shards": TASKS},
}

Figures = dict[str, list[float]]


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.delivery")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=40)
    given = parser.parse_args()
    origin = provenance()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, kafka() as broker, _session(folder) as spark:
        figures = _jobs(spark, broker, given.rows, given.rounds)
        figures |= _micro_batches(spark, broker, Path(folder), given.batches, given.rounds)
    told = {line: _line(ways) for line, ways in figures.items()}
    file = write_result(
        "spark-delivery",
        question=QUESTION,
        command=command_line("benchmarks.spark.delivery"),
        origin=origin,
        settings={
            "master": f"local[{CORES}]",
            "tasks": TASKS,
            "partitions": PARTITIONS,
            "rounds": given.rounds,
            "rows": given.rows,
            "batch_rows": BATCH_ROWS,
            "shards_of_batches": SHARDS,
            "load_before": load,
        },
        figures=told,
    )
    for line, ways in told.items():
        for way, found in ways.items():
            print(f"{line:<40}{way:<24}{found['median']:>10}")
    print(f"\nStored in {file.relative_to(ROOT)}")


def _line(ways: Figures) -> dict[str, dict[str, Any]]:
    return {way: spread_of(values).as_json() for way, values in ways.items()}


def _session(folder: str) -> AbstractContextManager[Any]:
    from kprod.spark.spark_job import session_on

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    settings = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
    return session_on(f"local[{CORES}]", "delivery", scratch=Path(folder), settings=settings)


def _jobs(spark: Any, broker: Broker, rows: int, rounds: int) -> dict[str, Figures]:
    from kprod.spark import write

    found: dict[str, Figures] = {}
    for size, share in SIZES.items():
        count = int(rows * share)
        made = synthetic(size)(spark, Path(), count)
        frame = made.repartition(TASKS).persist()
        frame.count()

        def run(way: dict[str, Any], number: int, frame: Any = frame) -> float:
            topic = broker.begin()
            named: dict[str, Any] = {"job_id": f"{topic}-{number}"} if "shards" in way else {}
            given: dict[str, Any] = {
                "bootstrap_servers": broker.bootstrap_servers,
                "progress": False,
            }
            started = time.perf_counter()
            write(frame, topic, **given, **way, **named)
            seconds = time.perf_counter() - started
            broker.end()
            return seconds

        found[f"seconds, {count:,} rows of {size:,} B"] = _turns(run, rounds)
        frame.unpersist()
    return found


def _turns(run: Callable[[dict[str, Any], int], float], rounds: int) -> Figures:
    """One of every way in each round, of which the first warms up and is not kept."""
    taken: Figures = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        for name in WAYS if number % 2 else list(WAYS)[::-1]:
            value = run(WAYS[name], number)
            print(name, number, round(value, 3), file=sys.stderr, flush=True)
            if number:
                taken[name].append(value)
    return taken


def _micro_batches(
    spark: Any, broker: Broker, folder: Path, batches: int, rounds: int
) -> dict[str, Figures]:
    taken: Figures = {"at_least_once": [], "exactly_once": []}
    lines = folder / "lines"
    lines.mkdir()
    for number in range(batches):
        rows = "".join(f"{number} {row} {'x' * 90}\n" for row in range(BATCH_ROWS))
        (lines / f"{number:06}.txt").write_text(rows)
    for number in range(rounds):
        for delivery in sorted(taken, reverse=bool(number % 2)):
            checkpoint = folder / f"checkpoint-{number}-{delivery}"
            taken[delivery] += _stream(spark, broker, lines, checkpoint, delivery)
    return {f"ms, micro-batch of {BATCH_ROWS:,} rows": taken}


def _stream(
    spark: Any, broker: Broker, lines: Path, checkpoint: Path, delivery: str
) -> list[float]:
    """Milliseconds of each micro-batch but the first ones; the same shuffle in both ways."""
    from kprod.spark import sharded

    topic = broker.begin()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
    placed = sharded(frame, SHARDS)
    if delivery == "at_least_once":
        placed = placed.drop("kprod_shard")
    query = (
        placed.writeStream.format("kprod")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
        .option("delivery", delivery)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [one["durationMs"]["addBatch"] for one in query.recentProgress if one["numInputRows"]]
    broker.end()
    return [float(value) for value in told[5:]]


if __name__ == "__main__":
    main()
