"""One cycle of the soak with little load."""

from __future__ import annotations

import pytest

from tests.support.programs import run_python

pytestmark = pytest.mark.full


def test_a_short_soak_runs_every_phase() -> None:
    """It is too short to decide, as its exit code says."""
    little = "--hours", "0.003", "--seconds", "4.5", "--rate", "200", "--without-spark"
    ran = run_python("-m", "tests.soak", *little, check=False, seconds=140)
    assert "producers, threads: too short to tell" in ran.stdout, ran.stderr
    assert ran.returncode == 1
