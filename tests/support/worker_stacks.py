"""Where the threads of a worker process are when a test takes too long: a pytest plugin.

pytest-timeout then ends the worker, whose standard output leads nowhere.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator

import pytest

SOONER = 0.9
"""Of the time a test may take: the stacks are written before pytest-timeout ends the worker."""
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """In a worker, keep standard error as it is before tests capture it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write the stacks shortly before the test's time is over."""
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker and marker.args else _default(item.config))
    if limit and STDERR in item.config.stash:
        faulthandler.dump_traceback_later(limit * SOONER, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _default(config: pytest.Config) -> float:
    return float(config.getoption("timeout") or config.getini("timeout") or 0)
