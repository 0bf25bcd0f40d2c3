"""Goals of writing from Spark, and its CPU time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.spark.brokers import cpu_seconds_since, cpu_ticks
from benchmarks.spark.goals import SECONDS, Goal
from benchmarks.spark.ways import NO_OP, WRITE

pytestmark = pytest.mark.full

TURNS = {
    NO_OP: [{"seconds": 2.0}, {"seconds": 3.0}, {"seconds": 9.0}],
    WRITE: [{"seconds": 2.0}, {"seconds": 2.0}, {"seconds": 3.0}],
}


@pytest.mark.parametrize(
    ("least", "most", "reached"),
    [(1.5, None, True), (1.6, None, False), (None, 1.5, True), (None, 1.4, False)],
)
def test_a_goal_is_reached_if_the_median_ratio_is_within_its_limits(
    least: float | None, most: float | None, reached: bool
) -> None:
    found = Goal("beside", SECONDS, NO_OP, WRITE, least, most).judged(TURNS)
    assert found is not None
    assert found["ratio"]["median"] == 1.5
    assert (found["ratio"]["min"], found["ratio"]["max"]) == (1.0, 3.0)
    assert found["reached"] is reached


def test_cpu_time_counts_the_process_and_its_children_only() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", busy], stdin=pipe, stdout=pipe) as worker:
        assert worker.stdout is not None
        before = {worker.pid: 0}
        worker.stdout.readline()
        assert set(cpu_ticks(worker.pid)) == {worker.pid}
        assert cpu_seconds_since(before, worker.pid) >= 0.25
        worker.communicate(b"\n")
    assert cpu_ticks(worker.pid) == {}
