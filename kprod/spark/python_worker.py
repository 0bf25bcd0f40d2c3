"""The Python worker of Spark around a task: what it spends on each of them, and less of it."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys

REUSED = "SPARK_REUSE_WORKER"
"""Spark sets it for workers that live for more than one task: its daemon then calls ``gc.collect``
after each of them."""
COLLECTS_LOGS = "PYSPARK_SPARK_SESSION_UUID"
"""Spark sets it where ``spark.sql.pyspark.worker.logging.enabled`` is on (from 4.1 on)."""
DESCRIPTORS = "/proc/self/fd"


def freeze_modules() -> None:
    """Let ``gc.collect`` skip what is alive now: the modules of Spark, pyarrow, pandas and kprod.

    Once in a process, and in a worker of Spark's only. Objects that are alive now and become
    garbage in a cycle later are kept (``gc.freeze``); all others are collected as before.
    """
    global _are_frozen  # noqa: PLW0603
    if os.environ.get(REUSED) and not _are_frozen:
        _are_frozen = True
        gc.collect()
        gc.freeze()


_are_frozen = False  # ``gc.get_freeze_count`` counts them one by one


def log_for_spark() -> None:
    """Let what kprod tells of shards and batches (INFO) pass where Spark collects a worker's log.

    Spark adds its handler to the root logger, which lets warnings pass. A level that the
    application has set for ``kprod`` stays.
    """
    log = logging.getLogger("kprod")
    if os.environ.get(COLLECTS_LOGS) and log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def acknowledge_at_once() -> None:
    """Acknowledge at once what the JVM has sent, so that it sends the rest.

    The JVM writes a task's command, and then its rows, into a socket without TCP_NODELAY: a small
    partition waits until the command is acknowledged (Nagle), and Linux delays that by 40 ms. The
    option holds for the next packets only: call it in each task. Spark keeps the socket to itself,
    so all of this process that lead to this machine get it. None does where the application has
    set a default timeout: Python would make each socket that is looked at a non-blocking one.
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
