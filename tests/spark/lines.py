"""A folder of text files for streams, a file for each micro-batch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

HOUR = 3_600


class Lines:
    """Its lines are "row 0", "row 1" and so on, over all files.

    Each file has its own time: Spark reads files in the order of their ages.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder / "in"
        self.folder.mkdir()
        self._spark = spark
        self._rows = 0
        self._made = time.time() - HOUR

    def add(self, rows: int) -> None:
        """Add a file atomically."""
        lines = "".join(f"row {self._rows + n}\n" for n in range(rows))
        name = f"{self._rows:06}.txt"
        written = self.folder.parent / name
        written.write_text(lines)
        os.utime(written, (self._made + self._rows,) * 2)
        written.rename(self.folder / name)
        self._rows += rows

    def stream(self) -> DataFrame:
        return self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder))


def pour(stream: DataFrame, into: Any, checkpoint: Path, mode: str = "append") -> None:
    """Write all rows, by a function for ``foreachBatch`` or by the data source with options."""
    writer = stream.writeStream.outputMode(mode).trigger(availableNow=True)
    sink = writer.foreachBatch(into) if callable(into) else writer.format("kprod").options(**into)
    sink.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
