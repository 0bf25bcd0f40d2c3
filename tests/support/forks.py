"""Three ways to fork; Python knows only of the first.

After the others Python does not reinitialize the GIL in the child, which may hang if a thread of
the parent waits for the GIL during the fork: see ``await_quiet``. (With glibc 2.36 it hangs at the
second or third release of the GIL, in ``__condvar_quiesce_and_switch_g1``.)
"""

from __future__ import annotations

import ctypes
import os
import platform
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

LIBC = ctypes.PyDLL(None)
"""Calls keep the GIL, so the child's only thread has it."""
CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call."""


def by_python() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are other threads
        return os.fork()


def by_c() -> int:
    """``fork()`` of the C library, as uWSGI and other C code calls it."""
    serve_waiting_threads()
    return int(LIBC.fork())


def by_system_call() -> int:
    """``clone``, without the C library."""
    serve_waiting_threads()
    return int(LIBC.syscall(CLONE[platform.machine()], signal.SIGCHLD, 0, 0, 0, 0))


FORKS = [
    by_python,
    by_c,
    pytest.param(
        by_system_call,
        marks=pytest.mark.skipif(
            sys.platform != "linux" or platform.machine() not in CLONE, reason="Linux only"
        ),
    ),
]


def in_child(fork: Callable[[], int], work: Callable[[], object]) -> str:
    """The result of ``work`` in a child as text, or its exception's type and text."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(50)
        try:
            result = str(work())
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(writing, result.encode())
        os._exit(0)
    os.close(writing)
    if not select.select([reading], [], [], 60)[0]:
        os.kill(child, signal.SIGKILL)  # it hangs, and keeps descriptors open
    with open(reading) as pipe:
        result = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return result


def ended_within(child: int, seconds: float) -> bool:
    """Whether ``child`` ends with status 0 in time; otherwise it is killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def serve_waiting_threads() -> None:
    """Let threads that wait for the GIL have it.

    A thread requests the GIL after waiting for a switch interval (5 ms). A child that is forked
    during a request releases the GIL to a thread that it does not have, and hangs. After this call
    there is no request for 5 ms.
    """
    time.sleep(0.001)


def await_quiet() -> None:
    """Wait until the other threads of this process have slept for 50 ms."""
    quiet_since, seen = time.monotonic(), _switches()
    while time.monotonic() - quiet_since < 0.05:
        time.sleep(0.005)
        if seen != (seen := _switches()):
            quiet_since = time.monotonic()


def _switches() -> list[str]:
    """How often each of the other threads went to sleep."""
    mine = str(threading.get_native_id())
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != mine]
    return [line for task in tasks for line in (task / "status").open() if "voluntary" in line]
