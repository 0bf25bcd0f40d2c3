"""The Spark jobs of the campaign, and the driver that runs them.

The driver is a separate process: ``python -m tests.spark.exactly_once_kills.jobs SESSION``. It
reads a job from each line of its standard input, and prints the outcome on standard output.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VARIABLE = "KPROD_PLANTED"
"""The environment variable of workers that names a bug."""
_planted = ExitStack()  # for as long as the process lives
KEYS = 7
FIRST_FILE = 1_700_000_000
"""Its time: Spark reads files in the order of their ages."""
ROWS = 240
BATCHES = 4
"""Micro-batches of a stream, which have as many rows in all as a batch job."""
SURFACES = ("write", "source", "stream", "foreach")
"""Ways to write that can be restarted by name; "call" is a ``write`` without a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``surface`` is one of ``SURFACES``, "call" or "twins". ``folder`` is its own.

    ``connect``: with Spark Connect, where ``foreach_batch`` does not know its query.
    """

    topic: str
    servers: str
    surface: str
    delivery: str
    shards: int
    folder: str
    transaction_timeout_ms: int = 60_000
    connect: bool = False

    @property
    def is_stream(self) -> bool:
        return self.surface in ("stream", "foreach")

    @property
    def batches(self) -> int:
        return BATCHES if self.is_stream else 1

    def lines(self) -> Path:
        """The folder with the rows of a stream, a file for each micro-batch."""
        return Path(self.folder, "lines")

    def checkpoint(self) -> Path:
        return Path(self.folder, "checkpoint")

    def layout_id(self) -> str | None:
        """The group of the decisions; None for a stream that never began.

        For a "call", whose name is random, it is a pattern.
        """
        if self.surface == "call":
            return rf"{re.escape(f'kprod-spark.{self.topic}')}\.[0-9a-f]{{32}}\.layout"
        if not self.is_stream or (self.connect and self.surface == "foreach"):
            return f"kprod-spark.{self.topic}.layout"
        metadata = self.checkpoint() / "metadata"
        if not metadata.exists():
            return None
        return f"kprod-spark.{self.topic}.{json.loads(metadata.read_text())['id']}.layout"


def writers(job: Job) -> list[str]:
    """The last word of the values of each writer."""
    return [job.topic, job.topic.upper()] if job.surface == "twins" else [job.topic]


def row(topic: str, batch: int, number: int) -> str:
    """The value of a row: batch, key, number and writer."""
    return f"{batch} {number % KEYS} {number:06} {topic}"


def expected(job: Job, writer: str) -> list[str]:
    each = ROWS // job.batches
    return [row(writer, batch, number) for batch in range(job.batches) for number in range(each)]


def task_of(job: Job, number: int) -> int:
    """The task that writes the row, where a key is in more than one shard."""
    return number * job.shards // ROWS if job.surface == "call" else 0


def prepare(job: Job) -> None:
    job.lines().mkdir(parents=True)
    each = ROWS // BATCHES
    for batch in range(BATCHES):
        rows = "".join(row(job.topic, batch, number) + "\n" for number in range(each))
        file = job.lines() / f"{batch:03}.txt"
        file.write_text(rows)
        os.utime(file, (FIRST_FILE + batch,) * 2)


def run(spark: SparkSession, job: Job) -> list[str] | None:
    """Run the job. Returns the writers that succeeded; None: all."""
    ways: dict[str, Callable[[SparkSession, Job], list[str] | None]] = {
        "write": _write,
        "call": _call,
        "twins": _twins,
        "source": _source,
        "stream": _stream,
        "foreach": _foreach,
    }
    return ways[job.surface](spark, job)


def batch_frame(
    spark: SparkSession, job: Job, tasks: int = 1, writer: str | None = None
) -> DataFrame:
    """The rows of a batch job, in the order of their numbers."""
    last = job.topic if writer is None else writer
    key = f"cast(id % {KEYS} as string)"
    return spark.range(0, ROWS, 1, tasks).selectExpr(
        f"{key} as key", f"concat('0 ', {key}, ' ', lpad(id, 6, '0'), ' {last}') as value"
    )


def _options(job: Job) -> dict[str, Any]:
    return {
        "bootstrap_servers": job.servers,
        "delivery": job.delivery,
        "job_id": job.topic,
        "shards": job.shards,
        "shard_by": "key" if job.surface != "twins" else None,  # the rows differ by writer
        "transaction_timeout_ms": job.transaction_timeout_ms,
    }


def _write(spark: SparkSession, job: Job) -> None:
    from kprod.spark import write

    write(batch_frame(spark, job), job.topic, progress=False, **_options(job))


def _call(spark: SparkSession, job: Job) -> None:
    from kprod.spark import write

    options = {**_options(job), "job_id": None, "shards": None, "shard_by": None}
    options["transaction_prefix"] = f"kprod-spark.{job.topic}"
    write(batch_frame(spark, job, job.shards), job.topic, progress=False, **options)


def _twins(spark: SparkSession, job: Job) -> list[str]:
    from kprod.spark import write

    def call(writer: str) -> Exception | None:
        rows = batch_frame(spark, job, writer=writer)
        try:
            write(rows, job.topic, progress=False, **_options(job))
        except Exception as error:
            return error
        return None

    names = writers(job)
    with ThreadPoolExecutor(len(names)) as threads:
        errors = dict(zip(names, threads.map(call, names), strict=True))
    # One call may fence the other after its decision. Its error says to repeat the call.
    for name, error in errors.items():
        if "BatchIncomplete" in f"{type(error).__name__}: {error}":
            errors[name] = call(name)
    return [name for name, error in errors.items() if error is None]


def _source_options(job: Job) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": job.servers,
        "kafka.transaction.timeout.ms": str(job.transaction_timeout_ms),
        "topic": job.topic,
        "delivery": job.delivery,
        "jobId": job.topic,
    }


def _source(spark: SparkSession, job: Job) -> None:
    from kprod.spark import sharded

    placed = sharded(batch_frame(spark, job), job.shards, by="key")
    placed.write.format("kprod").options(**_source_options(job)).mode("append").save()


def _lines(spark: SparkSession, job: Job) -> DataFrame:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(job.lines()))
    return lines.selectExpr("split(value, ' ')[1] as key", "value")


def _stream(spark: SparkSession, job: Job) -> None:
    from kprod.spark import sharded

    placed = sharded(_lines(spark, job), job.shards, by="key")
    _await(placed.writeStream.format("kprod").options(**_source_options(job)), job)


def _foreach(spark: SparkSession, job: Job) -> None:
    from kprod.spark import foreach_batch

    writes = foreach_batch(job.topic, **_options(job))
    _await(_lines(spark, job).writeStream.foreachBatch(writes), job)


def plant(wanted: str | None) -> None:
    """Plant the bug of this delivery and name, if any."""
    if wanted is not None:
        from tests.spark.exactly_once.bugs import ATOMIC, ONCE

        delivery, name = wanted.split()
        (bug,) = (bug for bug in (ATOMIC if delivery == "atomic" else ONCE) if bug.name == name)
        _planted.enter_context(bug.planted())


class Cancelled(Exception):
    """The query was stopped."""


stop = threading.Event()
"""Set by SIGUSR1 to stop the query."""


def _await(stream: Any, job: Job) -> None:
    checkpoint = stream.option("checkpointLocation", str(job.checkpoint()))
    query = checkpoint.trigger(availableNow=True).start()
    while not query.awaitTermination(1):
        if stop.is_set():
            query.stop()
            raise Cancelled


def main() -> None:
    from pyspark.sql import SparkSession

    given = json.loads(sys.argv[1])
    plant(given["settings"].get(f"spark.executorEnv.{VARIABLE}"))
    builder = SparkSession.builder
    builder = (builder.remote if given["connect"] else builder.master)(given["master"])
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    print("ready", flush=True)
    signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    for line in sys.stdin:
        outcome: dict[str, Any]
        stop.clear()
        try:
            outcome = {"wrote": run(spark, Job(**json.loads(line)))}
        except (Exception, KeyboardInterrupt) as error:
            outcome = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(outcome), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
