"""A Spark driver that runs a micro-batch whenever it is asked to, from one checkpoint.

    python -m tests.soak.spark_batches '{"folder": "...", "servers": "..."}'

Needs Java. The command is ``write``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from kprod.spark import foreach_batch
from tests.soak.command_process import serve
from tests.spark.driver_process import SETTINGS

MEMORY = "512m"


class SparkBatches:
    """One session. Every call is a run of the same query, which goes on from its checkpoint."""

    def __init__(self, folder: str, servers: str) -> None:
        self._lines = Path(folder, "lines")
        self._lines.mkdir()
        self._checkpoint = str(Path(folder, "checkpoint"))
        self._servers = servers
        self._written = 0
        builder = SparkSession.Builder().master("local[2]")
        for name, value in (SETTINGS | {"spark.driver.memory": MEMORY}).items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()

    def write(self, topic: str, rows: int) -> None:
        """Write the lines "0" and up to ``topic`` by one micro-batch; return once it is stored."""
        text = "".join(f"{number}\n" for number in range(rows))
        scratch = self._lines.with_name("scratch")
        scratch.write_text(text)
        written = scratch.rename(self._lines / f"{self._written}.txt")  # Spark must find it whole
        self._written += 1
        query = (
            self._spark.readStream.text(str(self._lines))
            .repartition(3)
            .writeStream.foreachBatch(foreach_batch(topic, bootstrap_servers=self._servers))
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        written.unlink()


def main() -> None:
    """Serve the command of standard input."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    serve({"write": SparkBatches(**json.loads(sys.argv[1])).write})


if __name__ == "__main__":
    main()
