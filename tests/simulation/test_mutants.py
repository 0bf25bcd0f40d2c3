"""The simulation bites: each planted bug is noticed, and without it nothing is."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.pool import AsyncResult

import pytest

from tests.simulation.bites import ENOUGH_SEEDS
from tests.simulation.mutants import MUTANTS


@pytest.mark.parametrize("mutant_at", range(len(MUTANTS)), ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_is_noticed(
    mutant_at: int, catching: Callable[[int], AsyncResult[bool]]
) -> None:
    noticed = catching(mutant_at).get()
    assert noticed, f"{ENOUGH_SEEDS} seeds did not notice that {MUTANTS[mutant_at].name}"
