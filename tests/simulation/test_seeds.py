"""No seed breaks an invariant."""

from __future__ import annotations

import os

import pytest

from tests.simulation.campaign import campaign, explain
from tests.support.programs import run_python
from tests.support.tier import seeds as default

SEEDS = default("KPROD_SIMULATION_SEEDS", 200, 2000)


def test_no_invariant_breaks(seeds: range) -> None:
    failures = campaign(seeds).failures
    if failures:
        raise AssertionError(explain(next(iter(failures))))


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    assert _digests(hash_seed=1) == _digests(hash_seed=2)


def _digests(hash_seed: int) -> str:
    """The digests in another process, where sets of strings have another order."""
    code = (
        "from tests.simulation.campaign import attempt\n"
        "from tests.simulation.exactly_once.world import attempt as attempt_transactions\n"
        "print(*(attempt(seed).digest for seed in range(20)))\n"
        "print(*(attempt_transactions(seed).digest for seed in range(20)))"
    )
    return run_python("-c", code, env={**os.environ, "PYTHONHASHSEED": str(hash_seed)}).stdout


@pytest.mark.full
def test_the_seeds_reach_every_kind_of_outcome() -> None:
    counts = campaign(range(50)).counts
    assert counts["acknowledged"] > counts["failed"] > counts["maybe"] > 0
    assert counts["refused"] > 0
