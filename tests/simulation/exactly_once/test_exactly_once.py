"""Transactions are atomic under every seed's faults."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import campaign
from tests.simulation.exactly_once.draw import draw
from tests.simulation.exactly_once.world import attempt
from tests.support.tier import seeds as default

SEEDS = default("KPROD_EXACTLY_ONCE_SEEDS", 100, 1000)


def test_no_reader_sees_part_of_a_transaction(seeds: range) -> None:
    failures = campaign(seeds, attempt).failures
    assert not failures, {seed: (violations, draw(seed)) for seed, violations in failures.items()}


@pytest.mark.full
def test_the_seeds_commit_and_abort_transactions() -> None:
    fates = campaign(range(50), attempt).counts
    assert fates["committed"] > fates["aborted"] > 0
