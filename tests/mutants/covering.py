"""Which tests execute a line of kprod, and how long each takes.

A plugin of pytest (``-p tests.mutants.covering``) records it in each worker; `Covering` reads the
records. Code in other processes, such as Spark's workers, is not recorded.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

RECORDED_IN = "KPROD_MUTANTS_COVERING"
"""Environment variable: the file to record to; each process adds a suffix."""
INTERRUPTION = "tests.support.interruption"
_recording: list[coverage.Coverage] = []
_seconds: dict[str, float] = {}


def pytest_configure() -> None:
    if place := os.environ.get(RECORDED_IN):
        recorder = coverage.Coverage(
            data_file=place, data_suffix=True, source_pkgs=["kprod"], config_file=False
        )
        _recording.append(recorder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record this test, unless it raises asynchronous exceptions, which may lock coverage up."""
    recorders = [] if _interrupts(item) else _recording
    for recorder in _recording:
        recorder.stop()
    for recorder in recorders:
        recorder.start()
        recorder.switch_context(item.nodeid)
    began = time.monotonic()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = time.monotonic() - began


def _interrupts(item: pytest.Item) -> bool:
    imported = vars(item.module).values() if isinstance(item, pytest.Function) else ()
    return any(getattr(one, "__module__", "") == INTERRUPTION for one in imported)


def pytest_unconfigure() -> None:
    while _recording:
        recorder = _recording.pop()
        recorder.stop()
        recorder.save()
        Path(f"{os.environ[RECORDED_IN]}-{os.getpid()}.seconds").write_text(json.dumps(_seconds))


class Covering:
    def __init__(self, place: Path, checkout: Path) -> None:
        """Read what was recorded at ``place``, of the modules in ``checkout``."""
        self._checkout = checkout
        self._seconds: dict[str, float] = {}
        for part in place.parent.glob(f"{place.name}-*.seconds"):
            self._seconds |= json.loads(part.read_text())
        self._data = coverage.CoverageData(basename=str(place), suffix="all")
        self._data.erase()
        for part in sorted(place.parent.glob(f"{place.name}.*")):
            read = coverage.CoverageData(basename=str(part))
            read.read()
            self._data.update(read)
        self._unrecorded = self._seconds.keys() - self._data.measured_contexts()

    def tests(self, file: str, lines: range, cheap: float) -> tuple[list[str], list[str]]:
        """The tests that execute one of the lines: the cheapest, up to ``cheap`` seconds, and the
        others.

        The unit tests of the package that could not be recorded are taken for such. A line that is
        executed at import is tested by all tests of its module.
        """
        by_line = self._by_line(file)
        package = f"tests/unit/{Path(file).parts[1]}/"
        found = {test for line in lines for test in by_line.get(line, ()) if test}
        if not found:
            found = {test for tests in by_line.values() for test in tests if test}
        found |= {test for test in self._unrecorded if test.startswith(package)}
        ordered = sorted(found, key=lambda test: self._seconds.get(test, 0.0))
        spent = itertools.accumulate(self._seconds.get(test, 0.0) for test in ordered)
        count = sum(seconds <= cheap for seconds in spent)
        return ordered[:count], ordered[count:]

    @functools.cache  # noqa: B019 - there is one, for the whole run
    def _by_line(self, file: str) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(str(self._checkout / file))
