"""Whether the seeds would notice a bug."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.surroundings import Outcome
from tests.support.planted import Bug

MORE_SEEDS = 100
"""How many are tried when the known seed does not notice a planted bug: it takes seconds."""


def check(bug: Bug, attempt: Callable[[int], Outcome]) -> None:
    """Some seed shows the bug, and shows nothing without it.

    The known seed first, then a few more: what seeds draw may have changed.
    """
    with bug.planted():
        seeds = (bug.seed, *range(MORE_SEEDS))
        found = next((seed for seed in seeds if attempt(seed).violations), None)
    assert found is not None, (
        f"not noticed: {bug.name}. Neither seed {bug.seed}, the known one, nor seeds 0 to "
        f"{MORE_SEEDS - 1} show it. Set MORE_SEEDS to 10,000, and store the seed that does. "
        "If none does, the code has outgrown this mistake: plant it where it can still be "
        "made, or remove it"
    )
    assert not attempt(found).violations
