"""The clock that stamps records which were sent without a time."""

from __future__ import annotations

import time

from kprod_ext import RecordClock

MINUTE = 60_000
TICK_MS = 20
"""No system has a coarser clock."""


def told(*source: int) -> list[int]:
    """What a clock tells whose source says this."""
    moments = iter(source)
    clock = RecordClock(lambda: next(moments))
    return [clock.wall_ms() for _ in source]


def test_it_tells_what_its_source_says() -> None:
    assert told(5, 7, 7, 9_000_000) == [5, 7, 7, 9_000_000]


def test_it_waits_while_its_source_is_set_back_a_little() -> None:
    assert told(MINUTE, MINUTE - 1, 1, MINUTE + 1) == [MINUTE, MINUTE, MINUTE, MINUTE + 1]


def test_it_follows_a_source_that_was_wrong_and_was_set_right() -> None:
    assert told(5 * MINUTE, 4 * MINUTE - 1, 4 * MINUTE) == [5 * MINUTE, 4 * MINUTE - 1, 4 * MINUTE]


def test_without_a_source_it_is_the_time_of_day() -> None:
    clock = RecordClock()
    before = time.time_ns() // 1_000_000
    assert before - TICK_MS <= clock.wall_ms() <= time.time_ns() // 1_000_000
