"""Samples from outside: what another process holds, its children, and the points of cycles."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.soak.__main__ import HELD
from tests.soak.sampling import Sample, points_of
from tests.soak.trend import judge
from tests.support.held_resources import HeldResources, held_resources

MEBIBYTE = 2**20
LEAK = """
import sys
kept = []
for line in sys.stdin:
    if line == "leak\\n":
        kept.append((bytearray(b"x" * 2**20), open(sys.executable, "rb")))
    print("done", flush=True)
"""


@pytest.fixture
def leaking() -> Iterator[subprocess.Popen[str]]:
    """A process that leaks a mebibyte and a descriptor whenever it is told to."""
    with subprocess.Popen(
        [sys.executable, "-c", LEAK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def told(process: subprocess.Popen[str], command: str) -> HeldResources:
    assert process.stdin is not None
    assert process.stdout is not None
    print(command, file=process.stdin, flush=True)
    assert process.stdout.readline() == "done\n"
    return held_resources(process.pid)


@pytest.mark.parametrize("command", ["leak", "rest"])
def test_a_process_that_leaks_is_found_out(leaking: subprocess.Popen[str], command: str) -> None:
    """The samples and the gate together, with a cycle for each sixth of an hour."""
    samples = [Sample(cycle / 6, cycle, "leaking", told(leaking, command)) for cycle in range(12)]
    for name, growing in (("memory", True), ("files", True), ("threads", False)):
        verdict = judge(HELD[name], points_of(samples, "leaking", name, range(2, 12)))
        assert verdict.grows == (growing and command == "leak"), str(verdict)
