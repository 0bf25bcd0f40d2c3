"""A Spark session that says nothing and leaves nothing behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
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
    shuffled = {"spark.sql.shuffle.partitions": str(2 * cores)}
    with session_on(f"local[{cores}]", app, scratch=scratch, settings=shuffled) as spark:
        yield spark


@contextmanager
def session_on(
    master: str, app: str, *, scratch: Path, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    """A session on any master, ``sc://`` for Spark Connect; ``settings`` win over ours.

    Ours are those of ``local_session`` on a local master, elsewhere only that it is quiet.
    """
    builder = SparkSession.Builder().appName(app)
    own: dict[str, str] = {}
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        builder = builder.master(master)
        own = QUIET
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local"):
            own = {**QUIET, **_local(scratch)}
    for name, value in {**own, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


QUIET = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _local(scratch: Path) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
