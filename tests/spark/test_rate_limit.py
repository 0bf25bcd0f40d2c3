"""A task keeps to its share of the job's rate."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kprod.schema.columns.record_plan import Rows
from kprod.spark.spark_job import most_tasks_at_once
from kprod.spark.task_sender import SLICE_SECONDS, RateLimit, RateLimiter


class Clock:
    """A clock that only ``sleep`` moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def limiter(clock: Clock, limit: RateLimit) -> RateLimiter:
    return RateLimiter(limit, now=clock, sleep=clock.sleep)


def test_sending_takes_as_long_as_the_shared_limit_says() -> None:
    clock = Clock()
    limited = limiter(clock, RateLimit(records=100).shared_by(2))
    for _ in range(500):
        limited.wait(1, 0)
    assert clock.now == pytest.approx(10.0)


def test_the_slower_of_two_limits_applies() -> None:
    clock = Clock()
    limited = limiter(clock, RateLimit(records=1_000, bytes=100))
    for _ in range(3):
        limited.wait(10, 100)
    assert clock.now == pytest.approx(3.0)


def test_idle_time_does_not_allow_a_burst() -> None:
    clock = Clock()
    limited = limiter(clock, RateLimit(records=10))
    clock.now = 100.0
    limited.wait(10, 0)
    limited.wait(10, 0)
    assert clock.now == pytest.approx(102.0)


def test_a_batch_is_sent_in_short_pieces() -> None:
    clock = Clock()
    limited = limiter(clock, RateLimit(records=1_000))
    rows = Rows("t", pa.RecordBatch.from_pydict({"value": [b"v"] * 1_000}))
    sizes = [piece.num_rows for piece in limited.pieces(rows)]
    assert sum(sizes) == 1_000
    assert clock.now == pytest.approx(1.0)
    assert max(sizes) == int(1_000 * SLICE_SECONDS)
    (small,) = limited.pieces(rows.slice(0, 5))
    assert small.num_rows == 5


def test_many_small_tasks_keep_the_rate() -> None:
    clock = Clock()
    for _ in range(20):
        limiter(clock, RateLimit(records=10)).wait(10, 0)
    assert clock.now == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[8]", "spark.default.parallelism": "2"}, 8),
        ({"spark.master": "local[8, 4]", "spark.task.cpus": "2"}, 4),
        ({"spark.master": "local[*]"}, None),
        ({"spark.master": "local-cluster[2,3,1024]"}, 6),
        ({"spark.master": "spark://host:7077"}, None),
        ({"spark.master": "spark://host:7077", "spark.cores.max": "12"}, 12),
        ({"spark.master": "yarn", "spark.executor.instances": "5"}, 5),
        (
            {
                "spark.master": "k8s://https://host",
                "spark.executor.instances": "2",
                "spark.executor.cores": "4",
                "spark.dynamicAllocation.enabled": "true",
            },
            None,
        ),
        (
            {
                "spark.master": "yarn",
                "spark.executor.cores": "4",
                "spark.dynamicAllocation.enabled": "True",  # what Python's True becomes
                "spark.dynamicAllocation.maxExecutors": "10",
            },
            40,
        ),
        ({}, None),
    ],
)
def test_most_tasks_at_once_follows_the_settings(
    settings: dict[str, str], most: int | None
) -> None:
    """Not those that run now: executors may be added."""
    assert most_tasks_at_once(settings.get) == most
