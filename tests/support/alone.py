"""Tests that no other thread may meet: each runs in a forked child, which has one thread.

Where allocations fail, they fail in every thread of the process. Other tests leave some behind: a
session's Spark, a broker that a whole file shares.
"""

from __future__ import annotations

import faulthandler
import gc
import inspect
import os
import signal
import sys
import traceback
import warnings
from typing import NoReturn

import pytest

SECONDS = 300
"""Less than a test may take: the child says where it hangs, and ends."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a test marked ``alone`` in a child, and fail with what the child says of it."""
    if pyfuncitem.get_closest_marker("alone") is None:
        return None
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads: they stay behind
        child = os.fork()
    if child == 0:
        _run_and_exit(pyfuncitem, writing)
    os.close(writing)
    with open(reading, errors="replace") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        pytest.fail(f"exit {os.waitstatus_to_exitcode(status)} in a child\n{said}", pytrace=False)
    return True


def _run_and_exit(test: pytest.Function, writing: int) -> NoReturn:
    """The child: its exit code says whether the test passed, and ``writing`` takes what it says."""
    # Not ``dump_traceback_later``: it would wait for a thread of the parent's that is not here.
    faulthandler.register(signal.SIGALRM, file=writing, chain=True)
    signal.alarm(SECONDS)
    failed: list[str] = []

    def note(met: sys.UnraisableHookArgs) -> None:
        if met.exc_type is not MemoryError:  # that one is what such tests bring about
            failed.append(f"unraisable: {met.exc_value!r} in {met.object!r}")

    sys.unraisablehook = note
    try:
        arguments = inspect.signature(test.obj).parameters
        test.obj(**{name: test.funcargs[name] for name in arguments})
        gc.collect()
    except BaseException:
        failed.append(traceback.format_exc())
    with open(writing, "w") as pipe:
        pipe.write("\n".join(failed))
    os._exit(1 if failed else 0)
