"""Whatever a seed does to the cluster and the wires, no invariant breaks."""

from __future__ import annotations

from tests.simulation.campaign import attempt, campaign, explain
from tests.simulation.draw import draw


def test_no_invariant_breaks(seeds: range) -> None:
    failures = campaign(seeds).failures
    if failures:
        raise AssertionError(explain(next(iter(failures))))


def test_a_seed_always_does_the_same() -> None:
    for seed in range(20):
        schedule = draw(seed)
        assert schedule == draw(seed)
        assert attempt(schedule).digest == attempt(schedule).digest


def test_the_seeds_reach_every_kind_of_outcome() -> None:
    tally = campaign(range(50))
    assert tally.acknowledged > tally.failed > tally.maybe > 0
    assert tally.refused > 0
