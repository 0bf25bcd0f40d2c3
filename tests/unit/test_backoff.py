"""Exponential backoff with a maximum and jitter."""

from __future__ import annotations

import random

import pytest

from kprod.clock import ExponentialBackoff
from tests.support.steady_random import SteadyRandom


@pytest.mark.parametrize(
    ("initial", "maximum", "delays"),
    [
        (0.1, 1.0, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (0.05, 1.0, [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (0.1, 0.1, [0.1, 0.1, 0.1]),
        (5.0, 1.0, [1.0, 1.0]),
        (0.0, 1.0, [0.0, 0.0]),
    ],
)
def test_the_delay_doubles_up_to_the_maximum(
    initial: float, maximum: float, delays: list[float]
) -> None:
    backoff = ExponentialBackoff(initial, maximum, SteadyRandom())
    found = [backoff.delay(failures) for failures in range(1, len(delays) + 1)]
    assert found == pytest.approx(delays)
    assert backoff.delay(2**62) == delays[-1]


def test_delays_have_a_jitter_of_20_percent_below_the_maximum() -> None:
    backoff = ExponentialBackoff(0.1, 1.0, random.Random(7))
    early = [backoff.delay(1) for _ in range(1000)]
    assert 0.08 <= min(early) < 0.085
    assert 0.115 < max(early) <= 0.12
    late = [backoff.delay(20) for _ in range(1000)]
    assert min(late) >= 0.8
    assert max(late) == 1.0
