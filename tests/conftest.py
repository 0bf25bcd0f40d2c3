"""What every test shares: that it tests what is there, where it runs, and how hard it searches."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import warnings
from collections.abc import Generator
from functools import partial
from importlib import import_module

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.tier import FULL

pytest_plugins = [
    "tests.support.alone",
    "tests.support.left_producers",
    "tests.support.spark_home",
    "tests.support.worker_shares",
]

# No deadline per example: a busy machine would turn it into a false alarm. pytest-timeout guards
# against a hang. The search of `make test` is repeatable, so that it finds what CI finds, and red
# means that the change is red; the one of the night is long and ever new.
settings.register_profile("usual", deadline=None, max_examples=50, derandomize=True, database=None)
settings.register_profile(
    "full",
    deadline=None,
    max_examples=300,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full" if FULL else "usual"))


def pytest_configure() -> None:
    """Ctrl-C means in tests, and in the processes they start, what it means in a terminal.

    A shell that starts a command in the background lets it ignore SIGINT, and its children, too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """A module that was changed after it was compiled would be tested as it was before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it warns: here that is the end
        from kprod.stale_extensions import stale_extensions
    if stale := stale_extensions():
        pytest.exit(f"newer than what is compiled, run make build: {', '.join(stale)}", 3)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage, of which collecting makes none."""
    gc.disable()
    try:
        _import_own_part(session.config)
        return (yield)
    finally:
        gc.enable()


def _import_own_part(config: pytest.Config) -> None:
    """Let each worker begin with other files than the others.

    In a fresh clone pytest rewrites the assertions of every test file, which takes longer than the
    rest of collecting it. All workers collect in the same order, so each would rewrite every file
    at the same moment. Pytest reports a file that cannot be imported when it collects it.
    """
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    root = config.rootpath
    folders = [folder for arg in config.args if (folder := root / arg).is_dir()]
    files = sorted({file for folder in folders for file in folder.rglob("test_*.py")})
    for file in files[own % workers :: workers]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish() -> None:
    """Take 400,000 objects of 11,000 tests out of the collector's way: they live to the end.

    Hypothesis asks the collector which objects refer to its random numbers when it first repeats
    a search. From Python 3.14 on the dict that does is among those put away: so it asks before.
    """
    _search_once()
    gc.collect()
    gc.freeze()


@settings(max_examples=1, derandomize=True, database=None)
@given(st.none())
def _search_once(nothing: None) -> None:
    """A search that is repeatable, and finds nothing."""


def pytest_runtest_setup() -> None:
    """Keep pyspark's formatter off pytest's handlers of logs: tests read exceptions as text.

    Its loggers put it on every handler that is added to them, in whichever thread and moment.
    """
    for handler in logging.getLogger().handlers:
        if _is_pyspark_s(handler.formatter):
            handler.setFormatter(None)
        if "setFormatter" not in vars(handler):
            vars(handler)["setFormatter"] = partial(_set_formatter, handler)


def _set_formatter(handler: logging.Handler, formatter: logging.Formatter | None) -> None:
    if not _is_pyspark_s(formatter):
        logging.Handler.setFormatter(handler, formatter)


def _is_pyspark_s(formatter: logging.Formatter | None) -> bool:
    return type(formatter).__module__.startswith("pyspark.")
