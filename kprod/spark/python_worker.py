"""Spark's Python workers: their task, their Python version, and the overhead of each task."""

from __future__ import annotations

import gc
import io
import logging
import os
import re
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from kprod.errors import ConfigError, UnsupportedVersionError

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of a stream's tasks; writers on the driver do not have them
(MicroBatchExecution)."""
RUN = "spark.jobGroup.id"
"""The local property with the id of one start of a query (``StreamExecution.runId``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """Identifies a task in Spark; numbers are -1 outside a task. ``attempt`` counts from 0.

    ``query`` and ``batch`` are those of a stream. ``start`` identifies one start of a query: it is
    the same for all batches until the query ends, and "" outside a stream. ``attempt_id`` is unique
    to this attempt; ``attempt`` begins again at 0 if Spark runs a stage again. Immutable.
    """

    application: str | None
    stage: int
    partition: int
    attempt: int
    query: str | None = None
    batch: int | None = None
    start: str = ""
    attempt_id: int = -1


NO_TASK = TaskIdentity(application=None, stage=-1, partition=-1, attempt=-1)
"""The identity outside a task, such as on the driver."""


def this_task() -> TaskIdentity:
    """The task that the calling thread runs."""
    context = TaskContext.get()
    if context is None:
        return NO_TASK
    batch = context.getLocalProperty(BATCH)
    application = context.getLocalProperty("spark.app.id")
    start = f"{application}/{context.getLocalProperty(RUN)}"
    return TaskIdentity(
        application=application,
        stage=context.stageId(),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        query=context.getLocalProperty(QUERY),
        batch=None if batch is None else int(batch),
        start="" if batch is None else start,
        attempt_id=context.taskAttemptId(),
    )


log = logging.getLogger("kprod")

WORKER = ("pyspark", "worker.py")
"""The module whose function ``main`` reads the input of a task from its argument ``infile``."""
CUT = (
    "Spark has closed the input of this task, because the task was killed or its rows could not be"
    " read. Nothing of this attempt is committed"
)
UNCHECKED = "this version of Spark does not show whether a task has received all its rows"


def check_rows_ended(*, required: bool = False) -> None:
    """Raise ConnectionAbortedError if Spark has closed the input of this task.

    Call it when the iterator of rows has ended. Spark closes the input of a task that it kills, or
    whose rows it cannot compute or fetch, and PySpark takes this for the end of the rows. After the
    last row, Spark sends an end mark (``SpecialLengths.END_OF_STREAM``), which PySpark reads when
    the task's function has returned. So the rows are complete if there is anything left to read.
    Waits for the mark. Does nothing outside a task.

    If this version of Spark does not show its input, UnsupportedVersionError is raised if the check
    is ``required``; otherwise a warning is logged.
    """
    if TaskContext.get() is None:
        return
    infile = _input_of_worker()
    if infile is None and required:
        raise UnsupportedVersionError(f"{UNCHECKED}: exactly-once delivery is not possible with it")
    if infile is None:
        log.warning("%s", UNCHECKED)
    elif not infile.peek(1) or _is_hung_up(infile):
        raise ConnectionAbortedError(CUT)


def _is_hung_up(infile: Any) -> bool:
    """Whether the JVM has closed its side: it does not wait for the task's result any more."""
    waiting = select.poll()
    try:
        waiting.register(infile.fileno(), getattr(select, "POLLRDHUP", 0))
    except io.UnsupportedOperation:  # without PySpark's daemon, it is a pair of files
        return False
    return bool(waiting.poll(0))


def _input_of_worker() -> Any:
    """The file from which this process reads rows; None if the frame that has it is not found."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "main" and Path(code.co_filename).parts[-2:] == WORKER:
            return frame.f_locals.get("infile")
        frame = frame.f_back
    return None


@contextmanager
def exits_at_hang_up() -> Iterator[None]:
    """While the block runs, let SIGHUP raise SystemExit in it, instead of ending the process.

    PySpark's daemon sends SIGHUP to its workers when its JVM ends: after Ctrl-C in a script, when
    an application is stopped, or when the JVM is killed. A task can then still abort its
    transaction. Otherwise the transaction would stay open until its time-out, if nobody starts the
    job again. Does nothing in other threads than the main thread, where Python runs no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _exit(number: int, _frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # once: nothing interrupts what follows
    raise SystemExit(128 + number)


REUSED = "SPARK_REUSE_WORKER"
"""Spark sets this variable for workers that run more than one task. They call ``gc.collect`` after
each task."""
COLLECTS_LOGS = "PYSPARK_SPARK_SESSION_UUID"
"""Spark sets this variable if ``spark.sql.pyspark.worker.logging.enabled`` is on (since 4.1)."""
DESCRIPTORS = "/proc/self/fd"


def freeze_modules() -> None:
    """Exclude existing objects from ``gc.collect``: modules of Spark, pyarrow, pandas and kprod.

    This is done once in a process, and only in a Spark worker. Existing objects that later become
    garbage in a cycle are never freed (``gc.freeze``). New objects are collected as before.
    """
    global _are_frozen  # noqa: PLW0603
    if os.environ.get(REUSED) and not _are_frozen:
        _are_frozen = True
        gc.collect()
        gc.freeze()


_are_frozen = False  # ``gc.get_freeze_count`` counts them one by one


def log_for_spark() -> None:
    """Let kprod log INFO messages about shards and batches if Spark collects the worker's log.

    Spark adds its handler to the root logger, whose level is WARNING. A level that the application
    has set for ``kprod`` is not changed.
    """
    log = logging.getLogger("kprod")
    if os.environ.get(COLLECTS_LOGS) and log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def acknowledge_at_once() -> None:
    """Acknowledge at once what the JVM has sent, so that the JVM sends the rest.

    The JVM writes a task's command, and then its rows, into a socket without TCP_NODELAY. The JVM
    does not send a small partition before the command is acknowledged (Nagle's algorithm), and
    Linux delays this acknowledgement by 40 ms. A socket option prevents the delay, but applies only
    to the next packets. So call this in each task. Spark does not expose its socket, so the option
    is set for all sockets of this process that are connected to this machine. If the application
    has set a default timeout of sockets, this function does nothing: Python would make each socket
    that is examined here non-blocking.
    """
    if sys.platform != "linux" or socket.getdefaulttimeout() is not None:
        return
    for name in os.listdir(DESCRIPTORS):
        try:
            found = socket.socket(fileno=int(name))
        except OSError:  # no socket, or closed by now
            continue
        try:
            if _is_from_here(found):
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except OSError:  # not connected
            continue
        finally:
            found.detach()  # it belongs to somebody else


def _is_from_here(found: socket.socket) -> bool:
    if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
        return False
    host: str = found.getpeername()[0]
    return host == "::1" or host.startswith("127.")


VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
WHAT_TO_DO = (
    f"set PYSPARK_PYTHON to a Python {VERSION} with kprod and pyarrow before you create the session"
)
MISMATCH = re.compile(r"PYTHON_VERSION_MISMATCH\].*?(\d+\.\d+).*?(\d+\.\d+)", re.DOTALL)
MISSING = re.compile(
    r"^ModuleNotFoundError: (No module named '(?:kprod|pyarrow)\b.*'|kprod\.spark needs \w+)",
    re.MULTILINE,
)


def python_failure(text: str) -> ConfigError | None:
    """The error if ``text`` says that the workers use another Python, or that a package is missing.

    ``text`` is the text of Spark's exception. A worker with such a problem has written nothing.
    Returns None if the exception has another cause.
    """
    mismatch = MISMATCH.search(text)
    if mismatch is not None:
        return ConfigError(
            f"the executors run Python {mismatch[1]}, but the driver runs {mismatch[2]}:"
            f" {WHAT_TO_DO}"
        )
    missing = MISSING.search(text)
    if missing is not None:
        return ConfigError(f"a package is missing on the executors: {missing[1]}; {WHAT_TO_DO}")
    return None
