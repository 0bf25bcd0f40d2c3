"""Samples from outside: what another process holds, its children, and the points of cycles."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.soak.__main__ import HELD
from tests.soak.sampling import Sample, points_of, python_family
from tests.soak.trend import judge
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
