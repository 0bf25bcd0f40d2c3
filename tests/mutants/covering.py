"""Which tests execute a line of kprod.

A plugin of pytest (``-p tests.mutants.covering``) records it in each worker; `Covering` reads the
records. Code in other processes, such as Spark's workers, is not recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

RECORDED_IN = "KPROD_MUTANTS_COVERING"
"""Environment variable: the file to record to; each process adds a suffix."""
INTERRUPTION = "tests.support.interruption"
_recording: list[coverage.Coverage] = []


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
    return (yield)


def _interrupts(item: pytest.Item) -> bool:
    imported = vars(item.module).values() if isinstance(item, pytest.Function) else ()
    return any(getattr(one, "__module__", "") == INTERRUPTION for one in imported)


def pytest_unconfigure() -> None:
    while _recording:
        recorder = _recording.pop()
        recorder.stop()
        recorder.save()


class Covering:
    def __init__(self, place: Path) -> None:
        self._data = coverage.CoverageData(basename=str(place), suffix="all")
        for part in sorted(place.parent.glob(f"{place.name}.*")):
            if not part.name.endswith(".all"):
                read = coverage.CoverageData(basename=str(part))
                read.read()
                self._data.update(read)

    def tests(self, file: Path, lines: range) -> list[str]:
        """The tests that execute one of the lines, unit tests first."""
        by_line = self._data.contexts_by_lineno(str(file))
        found = {test for line in lines for test in by_line.get(line, ()) if test}
        return sorted(found, key=lambda test: (not test.startswith("tests/unit"), test))
