"""Runs one Spark job of kprod: its thread, its progress, and cancelling it."""

from __future__ import annotations

import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TextIO

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from kprod.latch import Latch

LOOK_EVERY = 0.25  # seconds
FIRST_AFTER = 1.0  # a job that is done sooner says nothing
WIDTH = 30

Look = Callable[[], tuple[int, int] | None]
"""Returns the number of finished tasks and of all tasks; None if that is not known yet."""


@contextmanager
def progress_line(title: str, look: Look, stream: TextIO | None = None) -> Iterator[None]:
    """Draw a bar on ``stream`` (default: standard error) during the block, and then erase it.

    Nothing is drawn if the stream is not a terminal. ``look`` is called in another thread.
    """
    out = sys.stderr if stream is None else stream
    if not out.isatty():
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
    """The line to draw: ``title [====> ] 12/40 tasks, 31 s``."""
    full = WIDTH * done // tasks if tasks else 0
    drawn = ("=" * full + ">" * (full < WIDTH)).ljust(WIDTH)
    return f"{title} [{drawn}] {done:,}/{tasks:,} tasks, {seconds:.0f} s"


def is_true(setting: str | None) -> bool:
    """Whether a setting of Spark is on. Set from Python's ``True``, its text is "True"."""
    return (setting or "").strip().lower() == "true"


LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:, *\d+)?\]|-cluster\[(\d+), *(\d+), *\d+\])?")
"""Matches a master on the driver's machine: its threads, or its executors and the cores of each."""


def most_tasks_at_once(settings: Callable[[str], str | None]) -> int | None:
    """The maximum number of tasks that can ever run at the same time; None if there is no limit.

    It is computed only from Spark's ``settings``, because executors come and go.
    ``defaultParallelism`` is the number of cores at one moment, or what the user has set.
    """

    def number(name: str) -> int | None:
        text = settings(name)
        return int(text) if text and text.isdigit() else None

    per_task = number("spark.task.cpus") or 1
    cores = None
    master = settings("spark.master") or ""
    local = LOCAL.fullmatch(master)
    if local is not None:
        threads, nodes, each = local.groups()
        if nodes is not None:
            cores = int(nodes) * int(each)
        elif threads != "*":  # that is as many as the driver's machine has
            cores = int(threads or 1)
    elif master.startswith("spark:"):
        cores = number("spark.cores.max")
    elif master.startswith(("yarn", "k8s:")):
        dynamic = is_true(settings("spark.dynamicAllocation.enabled"))
        most = "spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"
        executors = number(most)
        cores = executors and executors * (number("spark.executor.cores") or 1)
    return None if cores is None else max(1, cores // per_task)


ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"  # since Spark 4.0
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"  # since Spark 4.1
UNCHECKED = str(2**31 - 1)
"""With any other limit of bytes, Spark adds up the size of the batch before each row."""
ROWS, SMALL_BYTES = 10_000, 4 << 20
"""Spark's default number of rows in a batch, and a batch that fits into the processor's caches."""
LARGE_ROW, HUGE_ROW, LARGE_JOB = 500, 10_000, 100_000_000
"""Bytes per row from which fewer rows per batch are better, and from which the check of each row
does not matter; bytes of a job from which any of ``faster_settings`` matters."""


def faster_settings(
    settings: Callable[[str], str | None], version: Callable[[], str], records: int, nbytes: int
) -> Mapping[str, str]:
    """Settings that are not set yet, and would make the next job with such rows faster.

    They concern the size of Arrow batches, the check of this size before each row, and Unix
    sockets, which save a copy. After a small job, such as a micro-batch, ``settings`` and
    ``version`` are not called.
    """
    if nbytes < LARGE_JOB:
        return {}
    found: dict[str, str] = {}
    since = tuple(map(int, version().split(".")[:2]))
    rows, fitting = settings(ARROW_ROWS), SMALL_BYTES * records // nbytes or 1
    most = int(rows or ROWS) if (rows or "0").isdigit() else 0  # 0: no limit
    many = nbytes >= LARGE_ROW * records and not 0 < most <= fitting
    if many or (rows is None and fitting > 2 * most):
        found[ARROW_ROWS] = str(fitting)[0].ljust(len(str(fitting)), "0")
    if settings(ARROW_BYTES) is None and since >= (4, 0) and nbytes < HUGE_ROW * records:
        found[ARROW_BYTES] = UNCHECKED
    if settings(UNIX_SOCKETS) is None and since >= (4, 1):
        found[UNIX_SOCKETS] = "true"
    return found


PROBE_ROWS = 1_000_000


def slots(spark: SparkSession) -> int:
    """The number of tasks that can run at the same time now (Spark's cores), at least one."""
    if not is_connect(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    # A client of Spark Connect does not get this number; a range has that many partitions.
    task = "spark_partition_id() as task"
    found = spark.range(0, PROBE_ROWS).selectExpr(task).distinct().count()
    return max(1, int(found))


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


def _progress_of(spark: SparkSession, title: str) -> AbstractContextManager[None]:
    if is_connect(spark):
        return _connect_progress(spark, title)
    return progress_line(title, _tasks_of_this_job(spark))


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


DESCRIPTION = "spark.job.description"
INTERRUPT = "spark.job.interruptOnCancel"
LONGEST_CANCEL = 20.0
"""Maximum seconds to wait for the jobs of an interrupted call to end."""


# A signal's handler runs in the main thread, and its exception would end a call to the JVM there:
# the answer would be taken for that to the next call, and what the JVM still does for the first
# would keep the next one waiting. Each thread has a connection of its own to the JVM. So the main
# thread only waits, and can talk to Spark when the wait has been interrupted. For the same reason a
# streaming query that is stopped, which interrupts its own thread in the JVM, does not keep kprod
# from running one more job: the one that aborts what was prepared.
def collect(
    frame: DataFrame, title: str, progress: bool, longest: float | None = None
) -> list[Any]:
    """The rows of ``frame``, collected in a separate thread.

    ``title`` is the name of the jobs in Spark's UI and in a progress bar on a terminal, and the
    beginning of their tag. The local properties of the calling thread (job group, scheduler pool)
    apply to the jobs. If the wait is interrupted, the jobs are cancelled, and the exception
    propagates after they have ended. The same happens after ``longest`` seconds, with a
    TimeoutError. Any thread may call this.
    """
    spark = frame.sparkSession
    # Unique, and readable where Spark's UI shows tags; a tag has no comma.
    tag = f"{title.replace(',', ' ')} ({uuid.uuid4().hex[:12]})"
    rows: Future[list[Any]] = Future()

    def run() -> None:
        try:
            if is_connect(spark):
                spark.addTag(tag)
            else:
                context = spark.sparkContext
                context.addJobTag(tag)
                context.setLocalProperty(DESCRIPTION, title)
                # Workers of tasks that are cancelled end at once, as those of streams do anyway.
                context.setLocalProperty(INTERRUPT, "true")
            rows.set_result(list(frame.collect()))
        except BaseException as error:
            rows.set_exception(error)

    thread = InheritableThread(target=run, name="kprod-spark-job", daemon=True, session=spark)
    with _progress_of(spark, title) if progress else nullcontext():
        thread.start()
        try:
            if not wait([rows], longest).done:
                raise TimeoutError(f"{title}: not done after {longest:.0f} s")
        except BaseException:
            with suppress(Exception):  # a JVM that is gone: what has interrupted the wait counts
                _cancel(spark, tag, thread)
            raise
    return rows.result()


def _cancel(spark: SparkSession, tag: str, thread: threading.Thread) -> None:
    """Cancel the jobs with ``tag`` until ``thread``, which starts them, has ended.

    Once is not enough: only jobs that run are cancelled, and the next may be about to start. A
    classic session finds its own tags (``interruptTag``) only in the thread that has added them.
    """
    give_up_at = time.monotonic() + LONGEST_CANCEL
    while thread.is_alive() and time.monotonic() < give_up_at:
        if is_connect(spark):
            spark.interruptTag(tag)
        else:
            spark.sparkContext.cancelJobsWithTag(tag)
        thread.join(LOOK_EVERY)


def is_connect(spark: SparkSession) -> bool:
    """Whether ``spark`` is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
