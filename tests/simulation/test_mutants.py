"""The simulation bites: each planted bug is noticed, and without it nothing is."""

from __future__ import annotations

import pytest

from tests.simulation.bites import ENOUGH_SEEDS, noticed
from tests.simulation.campaign import attempt
from tests.simulation.draw import draw
from tests.simulation.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_noticed(mutant: Mutant) -> None:
    # The known seed first; another change of the drawing of seeds may have moved it.
    for seed in (mutant.caught_by, *range(ENOUGH_SEEDS)):
        if noticed(mutant, seed):
            assert not attempt(draw(seed)).violations
            return
    pytest.fail(f"{ENOUGH_SEEDS} seeds did not notice that {mutant.name}")
