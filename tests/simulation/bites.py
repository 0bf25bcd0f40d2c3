"""``python -m tests.simulation.bites``: how many seeds it takes to notice each planted bug."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from functools import partial

from tests.simulation.campaign import attempt
from tests.simulation.draw import draw
from tests.simulation.mutants import MUTANTS, Mutant

MORE_SEEDS = 100
"""How many a test tries when the known seed does not notice a planted bug: it takes seconds."""


def noticed(mutant: Mutant, seed: int) -> bool:
    """True when the seed shows the planted bug."""
    schedule = draw(seed)
    with mutant.planted():
        return bool(attempt(schedule).violations)


def caught(place: int) -> bool:
    """True when some seed shows the mutant at ``place``, and shows nothing without it.

    The known seed first, then a few more: what seeds draw may have changed. Where the code no
    longer allows the mistake no seed shows it, so the search has an end.
    """
    mutant = MUTANTS[place]
    for seed in (mutant.caught_by, *range(MORE_SEEDS)):
        if noticed(mutant, seed):
            return not attempt(draw(seed)).violations
    return False


def not_noticed(name: str, known: int, hunt: str) -> str:
    """What a test says of a planted bug that no seed showed, and what to do."""
    return (
        f"not noticed: {name}. Neither seed {known}, the known one, nor seeds 0 to "
        f"{MORE_SEEDS - 1} show it. {hunt}, and store the seed that does. If none does, the code "
        "has outgrown this mistake: plant it where it can still be made, or remove it"
    )


def seeds_to_notice(place: int, most: int) -> tuple[int, int | None]:
    """The place of a mutant among all, and the first seed that shows it, None for none."""
    return place, next((seed for seed in range(most) if noticed(MUTANTS[place], seed)), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.bites", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bug", default="", help="only those whose name contains this")
    options = parser.parse_args()
    look = partial(seeds_to_notice, most=options.seeds)
    places = [at for at, mutant in enumerate(MUTANTS) if options.bug in mutant.name]
    missed = 0
    print("seeds  planted bug")
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for place, seed in pool.imap(look, places):
            missed += seed is None
            taken = "none" if seed is None else seed + 1
            print(f"{taken:>5}  {MUTANTS[place].name}", flush=True)
    print(f"{len(places) - missed} of {len(places)} noticed within {options.seeds} seeds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
