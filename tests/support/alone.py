"""Tests marked ``alone`` run in a forked child, which has only one thread.

They make allocations fail, which would affect the threads of other tests' Spark and brokers.
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
"""Less than a test's timeout: the child prints its stack and ends."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a test marked ``alone`` in a child, and fail with the child's output."""
    if pyfuncitem.get_closest_marker("alone") is None:
        return None
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are other threads
        child = os.fork()
    if child == 0:
        _run_and_exit(pyfuncitem, writing)
    os.close(writing)
    with open(reading, errors="replace") as pipe:
        output = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        pytest.fail(f"exit {os.waitstatus_to_exitcode(status)} in a child\n{output}", pytrace=False)
    return True


def _run_and_exit(test: pytest.Function, writing: int) -> NoReturn:
    """The child: its exit code is the result, ``writing`` gets the errors."""
    # Not ``dump_traceback_later``: it waits for a thread that the child does not have.
    faulthandler.register(signal.SIGALRM, file=writing, chain=True)
    signal.alarm(SECONDS)
    failed: list[str] = []

    def note(met: sys.UnraisableHookArgs) -> None:
        if met.exc_type is not MemoryError:  # which such tests cause
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
