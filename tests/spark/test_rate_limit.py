"""A task keeps to its share of the job's rate, by a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kprod.errors import ConfigError
from kprod.spark.rate_limit import SLICE_SECONDS, RateLimit, RateLimiter


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def limiter(clock: Clock, limit: RateLimit) -> RateLimiter:
    return RateLimiter(limit, now=clock, sleep=clock.sleep)


def test_so_many_records_take_so_many_seconds() -> None:
    clock = Clock()
    limited = limiter(clock, RateLimit(records=100).shared_by(2))
    for _ in range(501):
        limited.wait(1, 0)
    assert clock.now == pytest.approx(10.0)


def test_the_slower_of_two_limits_holds() -> None:
    clock = Clock()
    limited = limiter(clock, RateLimit(records=1_000, bytes=100))
    for _ in range(3):
        limited.wait(10, 100)
    assert clock.now == pytest.approx(2.0)


def test_time_in_which_nothing_was_sent_is_not_saved_up() -> None:
    clock = Clock()
    limited = limiter(clock, RateLimit(records=10))
    clock.now = 100.0
    limited.wait(10, 0)
    limited.wait(10, 0)
    assert clock.now == pytest.approx(101.0)


def test_a_batch_goes_in_pieces_of_a_moment() -> None:
    limited = limiter(Clock(), RateLimit(records=1_000))
    batch = pa.RecordBatch.from_pydict({"value": [b"v"] * 1_000})
    sizes = [piece.num_rows for piece in limited.pieces(batch, 1_000)]
    assert sum(sizes) == 1_000
    assert max(sizes) == int(1_000 * SLICE_SECONDS)
    (small,) = limited.pieces(batch.slice(0, 5), 5)
    assert small.num_rows == 5


def test_a_limit_is_more_than_nothing() -> None:
    limits: list[Any] = [0, -1, float("nan"), "1000", True]
    for limit in limits:
        with pytest.raises(ConfigError, match="max_bytes_per_second"):
            RateLimit(bytes=limit)
    assert RateLimit().is_unlimited
