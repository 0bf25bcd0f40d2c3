"""A folder of text files that streams read, a file for each micro-batch."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


class Lines:
    """Its lines are "row 0", "row 1" and so on, over all files."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder / "in"
        self.folder.mkdir()
        self._spark = spark
        self._rows = 0

    def add(self, rows: int) -> None:
        """One more file, which a query that runs finds whole."""
        lines = "".join(f"row {self._rows + n}\n" for n in range(rows))
        name = f"{self._rows:06}.txt"
        written = self.folder.parent / name
        written.write_text(lines)
        written.rename(self.folder / name)
        self._rows += rows

    def stream(self) -> DataFrame:
        """The lines in the column ``value``."""
        return self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder))
