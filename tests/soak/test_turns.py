"""One cycle of the soak with little load: every kind of turn works, and its judge finds nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.soak.command_process import ROOT

pytestmark = pytest.mark.full


def test_a_short_soak_takes_every_turn() -> None:
    """It is too short to tell anything of slopes, and says so by its exit code."""
    command = [sys.executable, "-m", "tests.soak", "--hours", "0.003", "--seconds", "4.5"]
    ran = subprocess.run(
        [*command, "--rate", "200", "--without-spark"],
        cwd=ROOT, capture_output=True, text=True, timeout=140, check=False,
    )  # fmt: skip
    assert "producers, threads: too short to tell" in ran.stdout, ran.stderr
    assert ran.returncode == 1
