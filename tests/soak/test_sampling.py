"""Samples from outside: what another process holds, its children, and the points of cycles."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.soak.__main__ import HELD
from tests.soak.page import page
from tests.soak.sampling import Sample, Sampler, points_of, python_family
from tests.soak.trend import Point, judge
from tests.support.held_resources import HeldResources, descendants, held_resources

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


def test_a_point_is_the_median_of_its_cycle() -> None:
    held = [HeldResources(memory, 0, 0) for memory in (1, 2, 90, 7, 8, 9)]
    samples = [Sample(n, n // 3, "one", each) for n, each in enumerate(held)]
    samples.append(Sample(7, 2, "one", HeldResources(5, 0, 0)))
    samples.append(Sample(1, 0, "another", HeldResources(500, 0, 0)))
    assert points_of(samples, "one", "memory", range(2)) == [Point(1, 2), Point(4, 8)]


def test_a_family_is_python_and_no_other_program() -> None:
    program = (
        "import subprocess, sys; children = [subprocess.Popen(one, stdin=subprocess.PIPE)"
        " for one in ([sys.executable, '-c', 'input()'], ['cat'])]; print('ready', flush=True);"
        " input(); [child.communicate() for child in children]"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        assert len(list(descendants(parent.pid))) == 2
        assert python_family(parent.pid).threads == 2
        parent.communicate("\n")


def test_a_process_that_has_ended_holds_nothing() -> None:
    """Also while its parent has not asked yet how it ended."""
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        assert ended.stdout.read() == b""
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessLookupError):
            held_resources(ended.pid)
    with pytest.raises(ProcessLookupError):
        held_resources(ended.pid)


def test_sampling_that_fails_ends_the_run() -> None:
    asked = threading.Event()

    def held() -> HeldResources:
        asked.set()
        raise RuntimeError("planted")

    def run() -> None:
        sampler = Sampler({"one": held}, seconds=0.0)
        with sampler.running():
            asked.wait()
            while True:
                sampler.end_cycle()

    with pytest.raises(RuntimeError, match="planted"):
        run()


def test_the_page_shows_every_measure() -> None:
    points = [Point(number / 10, 80 + number % 3) for number in range(12)]
    verdicts = {"producers": {name: judge(measure, points) for name, measure in HELD.items()}}
    shown = page(verdicts)
    for measure in HELD.values():
        assert f"{measure.name}: flat" in shown
    assert shown.count("<circle") == len(HELD) * len(points)
