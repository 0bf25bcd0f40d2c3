"""A Spark driver that runs micro-batches on command, from one checkpoint."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from kprod.spark import foreach_batch
from tests.spark.driver_process import SETTINGS
from tests.support.held_resources import HeldResources, descendants, held_resources

MEMORY = "512m"


def python_family(pid: int) -> HeldResources:
    """The resources of a driver and its Python workers, without the virtual machine."""
    held = held_resources(pid)
    for each in descendants(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if Path(f"/proc/{each}/comm").read_text().startswith("python"):
                held += held_resources(each)
    return held


class SparkBatches:
    """One session and one query for all phases. Needs Java.

    A query for each phase would leak: PySpark keeps a thread and a connection for every query with
    ``foreachBatch``.
    """

    def __init__(self, folder: str, servers: str) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self._lines = Path(folder, "lines")
        self._lines.mkdir()
        self._servers = servers
        self._topic = ""
        self._written = 0
        builder = SparkSession.Builder().master("local[2]")
        for name, value in (SETTINGS | {"spark.driver.memory": MEMORY}).items():
            builder = builder.config(name, value)
        self._query = (
            builder.getOrCreate()
            .readStream.text(str(self._lines))
            .repartition(3)
            .writeStream.foreachBatch(self._write_batch)
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .start()
        )

    def _write_batch(self, rows: DataFrame, batch: int) -> None:
        # Otherwise a metadata update would recreate a deleted topic.
        write = foreach_batch(
            self._topic, bootstrap_servers=self._servers, allow_auto_create_topics=False
        )
        write(rows, batch)

    def write(self, topic: str, rows: int) -> None:
        """Write the lines "0", "1", ... to ``topic`` by one micro-batch."""
        self._topic = topic
        text = "".join(f"{number}\n" for number in range(rows))
        scratch = self._lines.with_name("scratch")
        scratch.write_text(text)
        written = scratch.rename(self._lines / f"{self._written}.txt")  # atomically
        self._written += 1
        self._query.processAllAvailable()
        written.unlink()
