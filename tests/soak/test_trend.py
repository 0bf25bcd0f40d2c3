"""The gate: it notices a leak that was planted, and takes noise for what it is."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.soak.__main__ import MEASURES
from tests.soak.load import BRIEF
from tests.soak.trend import Measure, Point, judge

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


@pytest.mark.parametrize("at", [0.3, 0.7, 1.5, 2.6])
def test_a_step_is_no_growth_and_hides_none(at: float) -> None:
    """Of two mebibytes; a leak of as much in an hour is noticed beside it."""
    assert not judge(MEMORY, series(lambda hours: 80 + 2 * (hours > at))).grows
    assert judge(MEMORY, series(lambda hours: 80 + 2 * (hours > at) + 2 * hours)).grows


def test_a_kilobyte_of_each_brief_producer_is_noticed() -> None:
    """The cycles of the soak take 47 seconds."""
    for_each_hour = BRIEF / 1024 * 3600 / 47
    assert judge(MEASURES["memory"], series(lambda hours: 80 + for_each_hour * hours)).grows
    assert judge(MEASURES["heap"], series(lambda hours: 10 + for_each_hour * hours)).grows
