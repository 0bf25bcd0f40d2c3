"""What exactly once costs beside at least once: ``python -m benchmarks.spark.delivery``.

    python -m benchmarks.spark.delivery [--jars FOLDER] [--rows N] [--rounds N] [--batches N]

Whole jobs, and micro-batches of a thousand rows, to one Apache Kafka; the ways take turns. With the
jars that ``python -m benchmarks.spark`` wants, Spark's own Kafka sink is beside them. Stores
``results/spark-delivery.json``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measured_process import ROOT
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.spark.brokers import PARTITIONS, Broker, kafka
from benchmarks.spark.rows import Rows, synthetic
from benchmarks.spark.ways import TUNED, tuned_sink
from benchmarks.spread import spread_of

QUESTION = "What do exactly_once and atomic cost from Spark, in whole jobs and in micro-batches?"
CORES = 2
TASKS = 8
SIZES = {100: 1.0, 1_000: 1.0}
"""Bytes of values, and how many of the rows there are of them."""
BATCH_ROWS = 1_000
SHARDS = 2

SINK = "Spark's sink, tuned"

Way = Callable[[Any, str, str], None]
"""Writes a frame; takes the broker's address, and a topic."""


def _kprod(frame: Any, servers: str, topic: str, **options: Any) -> None:
    from kprod.spark import write

    write(frame, topic, bootstrap_servers=servers, progress=False, **options)


def _in_shards(frame: Any, servers: str, topic: str, **options: Any) -> None:
    """Under a name: a later start may come with other tasks, so that rows have their shards."""
    _kprod(frame, servers, topic, job_id=topic, shards=TASKS, **options)


def _shuffled(frame: Any, servers: str, topic: str) -> None:
    """At least once, behind the shuffle that shards need."""
    from kprod.spark import sharded

    _kprod(sharded(frame, TASKS).drop("kprod_shard", "kprod_shard_hash"), servers, topic)


def _sink(frame: Any, servers: str, topic: str) -> None:
    tuned_sink(Rows(frame, 0, 0), servers, topic)


WAYS: dict[str, Way] = {
    "at_least_once": _kprod,
    "exactly_once": partial(_kprod, delivery="exactly_once"),
    "atomic": partial(_kprod, delivery="atomic"),
    "at_least_once, shuffled": _shuffled,
    "exactly_once, sharded": partial(_in_shards, delivery="exactly_once"),
    "atomic, sharded": partial(_in_shards, delivery="atomic"),
    SINK: _sink,
}
STREAMS = ("at_least_once", "exactly_once", "atomic", SINK)

Figures = dict[str, list[float]]


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.delivery")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--jars", type=Path, help="folder with Spark's Kafka sink")
    parser.add_argument("--name", default="spark-delivery", help="of the file of results")
    given = parser.parse_args()
    ways = [way for way in WAYS if way != SINK or given.jars is not None]
    origin = provenance()
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory() as folder,
        kafka() as broker,
        _session(folder, given.jars) as spark,
    ):
        figures = _jobs(spark, broker, ways, given.rows, given.rounds)
        streams = [way for way in STREAMS if way in ways]
        figures |= _micro_batches(spark, broker, Path(folder), streams, given)
    told = {line: _line(ways) for line, ways in figures.items()}
    file = write_result(
        given.name,
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
            "tuned": TUNED,
            "load_before": load,
        },
        figures=told,
    )
    for line, spreads in told.items():
        for way, found in spreads.items():
            print(f"{line:<40}{way:<24}{found['median']:>10}")
    print(f"\nStored in {file.relative_to(ROOT)}")


def _line(ways: Figures) -> dict[str, dict[str, Any]]:
    return {way: spread_of(values).as_json() for way, values in ways.items()}


def _session(folder: str, jars: Path | None) -> AbstractContextManager[Any]:
    from kprod.cli.spark_pipeline import session_on

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    settings = {"spark.driver.memory": "6g", "spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
    if jars is not None:
        settings["spark.jars"] = ",".join(str(jar.resolve()) for jar in sorted(jars.glob("*.jar")))
    return session_on(f"local[{CORES}]", "delivery", scratch=Path(folder), settings=settings)


def _jobs(
    spark: Any, broker: Broker, ways: Sequence[str], rows: int, rounds: int
) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for size, share in SIZES.items():
        count = int(rows * share)
        made = synthetic(size)(spark, Path(), count)
        frame = made.repartition(TASKS).persist()
        frame.count()

        def run(way: str, frame: Any = frame) -> float:
            topic = broker.begin()
            started = time.perf_counter()
            WAYS[way](frame, broker.bootstrap_servers, topic)
            seconds = time.perf_counter() - started
            broker.end()
            return seconds

        found[f"seconds, {count:,} rows of {size:,} B"] = _turns(run, ways, rounds)
        frame.unpersist()
    return found


def _turns(run: Callable[[str], float], ways: Sequence[str], rounds: int) -> Figures:
    """One of every way in each round, of which the first warms up and is not kept."""
    taken: Figures = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in ways if number % 2 else ways[::-1]:
            value = run(way)
            print(way, number, round(value, 3), file=sys.stderr, flush=True)
            if number:
                taken[way].append(value)
    return taken


def _micro_batches(
    spark: Any, broker: Broker, folder: Path, ways: Sequence[str], given: argparse.Namespace
) -> dict[str, Figures]:
    taken: Figures = {way: [] for way in ways}
    lines = folder / "lines"
    lines.mkdir()
    for number in range(given.batches):
        rows = "".join(f"{number} {row} {'x' * 90}\n" for row in range(BATCH_ROWS))
        (lines / f"{number:06}.txt").write_text(rows)
    for number in range(given.rounds):
        for way in ways if number % 2 else ways[::-1]:
            checkpoint = folder / f"checkpoint-{number}-{ways.index(way)}"
            taken[way] += _stream(spark, broker, lines, checkpoint, way)
    return {f"ms, micro-batch of {BATCH_ROWS:,} rows": taken}


def _stream(spark: Any, broker: Broker, lines: Path, checkpoint: Path, way: str) -> list[float]:
    """Milliseconds of each micro-batch but the first ones; the same shuffle in all ways."""
    from kprod.spark import sharded

    topic = broker.begin()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
    placed = sharded(frame, SHARDS)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    if way == SINK:
        options |= {f"kafka.{name}": str(value) for name, value in TUNED.items()}
    else:
        options["delivery"] = way
    if way in (SINK, "at_least_once"):
        placed = placed.drop("kprod_shard", "kprod_shard_hash")
    query = (
        placed.writeStream.format("kafka" if way == SINK else "kprod")
        .options(**options)
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
