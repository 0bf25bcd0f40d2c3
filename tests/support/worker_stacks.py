"""What a worker process was doing when it ended in the middle of a test: a pytest plugin.

A test that hangs, or crashes the interpreter, takes its worker with it. The worker writes the
stacks of its threads into a file, which the process that hands out the tests adds to the failure.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
SOONER = 0.9
"""Of the time a test may take: the stacks are written before pytest-timeout ends the worker."""

_stacks: IO[str] | None = None


def _file(worker: str, session: str) -> Path:
    return ROOT / "build" / "stacks" / f"{session}-{worker}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """In a worker, have a file ready."""
    global _stacks  # noqa: PLW0603  (faulthandler needs a file that stays open)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        path = _file(worker, os.environ["PYTEST_XDIST_TESTRUNUID"])
        path.parent.mkdir(parents=True, exist_ok=True)
        _stacks = path.open("w")
        faulthandler.enable(_stacks)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing went wrong: leave nothing behind."""
    if _stacks is not None:
        faulthandler.enable()
        _stacks.close()
        Path(_stacks.name).unlink(missing_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write the stacks shortly before the test's time is over."""
    if _stacks is None:
        return (yield)
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker and marker.args else _default(item.config))
    if limit:
        faulthandler.dump_traceback_later(limit * SOONER, file=_stacks)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _default(config: pytest.Config) -> float:
    return float(config.getoption("timeout") or config.getini("timeout") or 0)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report: pytest.TestReport) -> None:
    """Another process: tell what the worker has left."""
    gateway = getattr(report, "node").gateway  # noqa: B009  (xdist adds it)
    for path in (ROOT / "build" / "stacks").glob(f"*-{gateway.id}"):
        report.longrepr = f"{report.longrepr}\n{path.read_text()}"
        path.unlink()
