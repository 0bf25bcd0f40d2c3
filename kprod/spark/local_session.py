"""A Spark session on this machine that says nothing and leaves nothing behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

# One quick compiler and one collector thread: on a small, busy machine a job of seconds is done
# several times sooner than with what suits a server.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def local_session(app: str, *, cores: int, scratch: Path) -> Iterator[SparkSession]:
    """A session on ``local[cores]`` for a short block: no web UI, no log lines below ERROR.

    Its temporary files go below ``scratch``; its Python workers run this interpreter, unless the
    environment names another one in ``PYSPARK_PYTHON``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().master(f"local[{cores}]").appName(app)
    for name, value in _settings(cores, scratch).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _settings(cores: int, scratch: Path) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
