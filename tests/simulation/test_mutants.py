"""The simulations detect each planted bug, and report nothing without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.campaign import attempt
from tests.simulation.exactly_once.bugs import BUGS as BUGS_OF_TRANSACTIONS
from tests.simulation.exactly_once.world import attempt as attempt_transactions
from tests.simulation.surroundings import Outcome
from tests.support.planted import Bug

MORE_SEEDS = 100
"""Seeds to try when the known one does not detect the bug: it takes seconds."""
PLANTED = [(bug, attempt) for bug in BUGS]
PLANTED += [(bug, attempt_transactions) for bug in BUGS_OF_TRANSACTIONS]


@pytest.mark.parametrize(("bug", "attempt"), PLANTED, ids=[bug.name for bug, _ in PLANTED])
def test_a_planted_bug_is_noticed(bug: Bug, attempt: Callable[[int], Outcome]) -> None:
    """Try the known seed first, then others: the draws of a seed may have changed."""
    with bug.planted():
        seeds = (bug.seed, *range(MORE_SEEDS))
        found = next((seed for seed in seeds if attempt(seed).violations), None)
    assert found is not None, (
        f"not detected: {bug.name}, with seed {bug.seed} and seeds 0 to {MORE_SEEDS - 1}. Set "
        "MORE_SEEDS to 10,000, and store the seed that detects it. If none does, the bug is no "
        "longer possible there: plant it elsewhere, or remove it"
    )
    assert not attempt(found).violations
