"""Three ways to make a forked child; Python itself is told of the first only.

After the others Python does not set its own lock up anew in the child. So no thread of the parent
may be waiting for it meanwhile, or the child can hang, whatever it runs: see ``await_quiet``.
With glibc 2.36 the child hangs when it gives the lock up for the second or third time:
``pthread_cond_signal`` waits there until the thread that waited has left, which the child does not
have (``__condvar_quiesce_and_switch_g1``).
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
"""Its functions are called with the GIL: the child's only thread has it."""
CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call by machine."""


def by_python() -> int:
    """``os.fork()``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are other threads
        return os.fork()


def by_c() -> int:
    """``fork()`` of the C library, as uWSGI and other C code calls it."""
    serve_waiting_threads()
    return int(LIBC.fork())


def by_system_call() -> int:
    """``clone``, which goes past the C library."""
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
    """What ``work`` returns in a child, as text; what it raises, as its type and its text."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(50)
        try:
            told = str(work())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    if not select.select([reading], [], [], 60)[0]:
        os.kill(child, signal.SIGKILL)  # it hangs, and holds what the test's process has open
    with open(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return told


def ended_within(child: int, seconds: float) -> bool:
    """Wait until ``child`` ends with status 0; one that does not end is killed."""
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
    """Let threads that wait for the interpreter have it.

    A thread asks for it once it has waited for a switch interval (5 ms) in which no other thread
    got it. A child that is forked while somebody asks gives the interpreter up, and waits for ever
    for the thread that asked, which it does not have. After this, nobody asks for 5 ms.
    """
    time.sleep(0.001)


def await_quiet() -> None:
    """Wait until the other threads of this process have been asleep for a while."""
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
