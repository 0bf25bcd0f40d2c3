"""A Spark session, and one job of ours on it: how many tasks run at once, and how far it is."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession

from kprod.latch import Latch

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


LOOK_EVERY = 0.25  # seconds
FIRST_AFTER = 1.0  # a job that is done sooner says nothing
WIDTH = 30

Look = Callable[[], tuple[int, int] | None]
"""Tasks that are done, and all there are; None while that is not known."""


@contextmanager
def progress_line(title: str, look: Look | None, stream: TextIO | None = None) -> Iterator[None]:
    """Draw a bar on ``stream`` (default: standard error) during the block, and then erase it.

    Nothing is drawn without ``look``, or when the stream is no terminal. ``look`` is called by
    another thread.
    """
    out = sys.stderr if stream is None else stream
    if look is None or not out.isatty():
        yield
        return
    done = Latch()
    thread = threading.Thread(
        target=_draw, args=(title, look, out, done), name="kprod-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.open()
        thread.join()


def _draw(title: str, look: Look, out: TextIO, done: Latch) -> None:
    started = time.monotonic()
    drawn = 0
    pause = FIRST_AFTER
    while not done.wait(pause):
        pause = LOOK_EVERY
        seen = look()
        if seen is not None:
            line = bar(title, *seen, time.monotonic() - started)
            out.write("\r" + line.ljust(drawn))
            out.flush()
            drawn = len(line)
    if drawn:
        out.write("\r" + " " * drawn + "\r")
        out.flush()


def bar(title: str, done: int, tasks: int, seconds: float) -> str:
    """The line: ``title [====>     ] 12/40 tasks, 31 s``."""
    full = WIDTH * done // tasks if tasks else 0
    drawn = ("=" * full + ">" * (full < WIDTH)).ljust(WIDTH)
    return f"{title} [{drawn}] {done:,}/{tasks:,} tasks, {seconds:.0f} s"


PROBE_ROWS = 1_000_000


def collect(frame: DataFrame, title: str, progress: bool) -> list[Any]:
    """The rows of a frame, with a progress bar on a terminal meanwhile."""
    with _watched(frame.sparkSession, title, progress):
        return list(frame.collect())


def slots(spark: SparkSession) -> int:
    """How many tasks run at the same time, at least one: the cores Spark counts on."""
    if not is_connect(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    # A client of Spark Connect is told no such number; a range has that many partitions.
    task = "spark_partition_id() as task"
    found = spark.range(0, PROBE_ROWS).selectExpr(task).distinct().count()
    return max(1, int(found))


@contextmanager
def _watched(spark: SparkSession, title: str, progress: bool) -> Iterator[None]:
    if not progress:
        yield
        return
    if is_connect(spark):
        with _connect_progress(spark, title):
            yield
        return
    with progress_line(title, _tasks_of_this_job(spark)):
        yield


def _tasks_of_this_job(spark: SparkSession) -> Look:
    context = spark.sparkContext
    tracker = context.statusTracker()
    before = set(tracker.getActiveJobsIds())

    def look() -> tuple[int, int] | None:
        done = tasks = 0
        for job in set(tracker.getActiveJobsIds()) - before:
            info = tracker.getJobInfo(job)
            stages = [tracker.getStageInfo(stage) for stage in (info.stageIds if info else ())]
            done += sum(stage.numCompletedTasks for stage in stages if stage)
            tasks += sum(stage.numTasks for stage in stages if stage)
        return (done, tasks) if tasks else None

    return look


@contextmanager
def _connect_progress(spark: Any, title: str) -> Iterator[None]:
    seen: tuple[int, int] | None = None

    def note(stages: Any, **_: Any) -> None:
        nonlocal seen
        done = sum(stage.num_completed_tasks for stage in stages or ())
        seen = done, sum(stage.num_tasks for stage in stages or ())

    spark.registerProgressHandler(note)
    try:
        with progress_line(title, lambda: seen):
            yield
    finally:
        spark.removeProgressHandler(note)


def is_connect(spark: SparkSession) -> bool:
    """Whether it is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
