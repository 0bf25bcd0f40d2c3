"""The gate: it notices a leak that was planted, and takes noise for what it is."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest

from tests.soak.__main__ import HEAP, HELD
from tests.soak.load import BRIEF
from tests.soak.trend import Measure, Point, judge, trend_of

MEMORY = Measure("memory", "MiB", negligible=1.0)
CYCLES = 60
HOURS = 3.0


def series(value: Callable[[float], float], cycles: int = CYCLES) -> list[Point]:
    times = [HOURS * number / cycles for number in range(cycles)]
    return [Point(hours, value(hours)) for hours in times]


def noisy(seed: int, leak: float) -> list[Point]:
    """80 MiB, three of noise on either side, now and then one of 40 that passes; and a leak."""
    dice = random.Random(seed)
    return series(
        lambda hours: 80 + leak * hours + dice.uniform(-3, 3) + 40 * (dice.random() < 0.05)
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_leak_is_noticed(seed: int) -> None:
    """Of four mebibytes an hour, in noise of six."""
    verdict = judge(MEMORY, noisy(seed, leak=4.0))
    assert verdict.grows
    assert verdict.trend.low < 4.0 < verdict.trend.high


def test_noise_without_a_leak_passes() -> None:
    """But for one run in a hundred, as the confidence says: here none of two hundred."""
    verdicts = [judge(MEMORY, noisy(seed, leak=0.0)) for seed in range(200)]
    assert all(verdict.is_decided for verdict in verdicts)
    assert not [verdict for verdict in verdicts if verdict.grows]
    zero_refused = sum(verdict.trend.low > 0 for verdict in verdicts)
    assert zero_refused <= 6, "far more often than once in a hundred"


def test_a_descriptor_that_is_lost_now_and_then_is_noticed() -> None:
    lost = judge(Measure("files", "", 0.5), series(lambda hours: 20 + math.floor(2 * hours)))
    assert lost.grows
    assert str(lost).startswith("grows: +1.92 per hour")


@pytest.mark.parametrize("at", [0.3, 0.7, 1.5, 2.6])
def test_a_step_is_no_growth_and_hides_none(at: float) -> None:
    """Of two mebibytes; a leak of as much in an hour is noticed beside it."""
    assert not judge(MEMORY, series(lambda hours: 80 + 2 * (hours > at))).grows
    assert judge(MEMORY, series(lambda hours: 80 + 2 * (hours > at) + 2 * hours)).grows


def test_a_kilobyte_of_each_brief_producer_is_noticed() -> None:
    """The cycles of the soak take 47 seconds."""
    for_each_hour = BRIEF / 1024 * 3600 / 47
    assert judge(HELD["memory"], series(lambda hours: 80 + for_each_hour * hours)).grows
    assert judge(HEAP, series(lambda hours: 10 + for_each_hour * hours)).grows


def test_a_leak_that_means_nothing_passes() -> None:
    verdict = judge(MEMORY, series(lambda hours: 80 + 0.5 * hours))
    assert verdict.trend.low > 0
    assert not verdict.grows


def test_what_shrinks_or_stays_passes() -> None:
    assert not judge(MEMORY, series(lambda hours: 80 - 4 * hours)).grows
    steady = judge(MEMORY, series(lambda _: 80.0))
    assert steady.trend == (0, 0, 0)
    assert not steady.grows
    assert steady.is_decided


def test_a_few_cycles_decide_nothing() -> None:
    verdict = judge(MEMORY, series(lambda hours: 80 + 100 * hours, cycles=4))
    assert not verdict.is_decided
    assert not verdict.grows
    assert str(verdict).startswith("too short to tell")
    assert judge(MEMORY, series(lambda hours: 80 + 100 * hours, cycles=6)).grows


def test_the_slope_is_the_median_of_all_pairs() -> None:
    """By hand, with times that are not equally far apart, and beside least squares."""
    points = [Point(0, 0), Point(1, 2), Point(3, 2), Point(4, 9)]
    slopes = [2 / 1, 2 / 3, 9 / 4, 0 / 2, 7 / 3, 7 / 1]
    assert trend_of(points).slope == pytest.approx(statistics.median(slopes))
    straight = series(lambda hours: 1 + 2 * hours)
    fitted = statistics.linear_regression(*zip(*straight, strict=True))
    assert trend_of(straight) == pytest.approx((fitted.slope,) * 3)


@pytest.mark.parametrize("points", [[], [Point(1, 1)], [Point(1, 1), Point(1, 2)]])
def test_points_at_one_time_decide_nothing(points: list[Point]) -> None:
    assert trend_of(points) == (0, -math.inf, math.inf)
