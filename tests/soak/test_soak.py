"""The trend test detects leaks and ignores noise; a short soak runs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.soak.__main__ import MEASURES
from tests.soak.load import BRIEF
from tests.soak.trend import Measure, Point, assess
from tests.support.programs import run_python

MEMORY = Measure("memory", "MiB", negligible=1.0)
CYCLES = 60
HOURS = 3.0


def series(value: Callable[[float], float], cycles: int = CYCLES) -> list[Point]:
    times = [HOURS * number / cycles for number in range(cycles)]
    return [Point(hours, value(hours)) for hours in times]


def noisy(seed: int, leak: float) -> list[Point]:
    """80 MiB with noise of 3 MiB, rare outliers of 40 MiB, and a leak."""
    rng = random.Random(seed)
    return series(lambda hours: 80 + leak * hours + rng.uniform(-3, 3) + 40 * (rng.random() < 0.05))


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_is_detected(seed: int) -> None:
    """4 MiB per hour, in noise of 6 MiB."""
    result = assess(MEMORY, noisy(seed, leak=4.0))
    assert result.grows
    assert result.trend.low < 4.0 < result.trend.high


def test_noise_without_a_leak_is_not_growth() -> None:
    """Except in one run of a hundred, by the confidence level; here in none of two hundred."""
    results = [assess(MEMORY, noisy(seed, leak=0.0)) for seed in range(200)]
    assert all(result.is_decided for result in results)
    assert not [result for result in results if result.grows]
    rejected = sum(result.trend.low > 0 for result in results)
    assert rejected <= 6, "far more often than once in a hundred"


@pytest.mark.parametrize("at", [0.3, 0.7, 1.5, 2.6])
def test_a_step_is_not_growth_and_does_not_hide_a_leak(at: float) -> None:
    """A step of 2 MiB, and a leak of 2 MiB per hour."""
    assert not assess(MEMORY, series(lambda hours: 80 + 2 * (hours > at))).grows
    assert assess(MEMORY, series(lambda hours: 80 + 2 * (hours > at) + 2 * hours)).grows


def test_a_leak_of_a_kilobyte_per_short_lived_producer_is_detected() -> None:
    """A cycle takes 47 seconds."""
    for_each_hour = BRIEF / 1024 * 3600 / 47
    assert assess(MEASURES["memory"], series(lambda hours: 80 + for_each_hour * hours)).grows
    assert assess(MEASURES["heap"], series(lambda hours: 10 + for_each_hour * hours)).grows


@pytest.mark.full
def test_a_short_soak_runs_every_phase() -> None:
    """It is too short to decide, as its exit code says."""
    little = "--hours", "0.003", "--seconds", "4.5", "--rate", "200", "--without-spark"
    ran = run_python("-m", "tests.soak", *little, check=False, seconds=140)
    assert "producers, threads: too short to tell" in ran.stdout, ran.stderr
    assert ran.returncode == 1
