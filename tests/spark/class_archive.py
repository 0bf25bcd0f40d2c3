"""Classes of Spark as an archive that its virtual machines map (JEP 350).

That is half of the CPU time of their start. It is made once for each release, below ``build/``, by
a driver that runs a job of each kind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyspark

from tests.support.apache_kafka.class_archive import make_archive

FOLDER = Path(__file__).parents[2] / "build" / "classes"
SECONDS = 300

PROGRAM = """
import sys, tempfile
from pathlib import Path
from pyspark import SparkContext
from pyspark.sql import SparkSession

options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit=" + sys.argv[1]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()
frame = spark.range(0, 100).selectExpr("cast(id as string) as key", "xxhash64(id) as place")
frame.repartition(2, "place").mapInArrow(lambda batches: batches, frame.schema).collect()
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "in").mkdir()
    Path(folder, "in", "1.txt").write_text("1 2 3")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(folder + "/in")
    lines = lines.selectExpr("split(value, ' ')[1] as key", "value").repartition(2, "key")
    query = lines.writeStream.format("noop").option("checkpointLocation", folder + "/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
process = SparkContext._gateway.proc
SparkContext._gateway.shutdown()
process.stdin.close()
process.wait(100)
"""


def shared_classes() -> str:
    """The option of Java that maps Spark's; empty where there is no archive."""

    def run(into: Path) -> None:
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, "-c", PROGRAM, str(into)]
        with suppress(subprocess.TimeoutExpired):  # a busy machine starts without it
            subprocess.run(
                command, env=environment, capture_output=True, timeout=SECONDS, check=False
            )

    archive = FOLDER / f"spark-{pyspark.__version__}.jsa"
    make_archive(archive, run)
    return f"-XX:SharedArchiveFile={archive}" if archive.exists() else ""
