"""``python -m tests.simulation.bites``: how many seeds it takes to notice each planted bug."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from functools import partial

from tests.simulation.campaign import attempt
from tests.simulation.draw import draw
from tests.simulation.mutants import MUTANTS, Mutant

ENOUGH_SEEDS = 1000


def noticed(mutant: Mutant, seed: int) -> bool:
    """True when the seed shows the planted bug."""
    schedule = draw(seed)
    with mutant.planted():
        return bool(attempt(schedule).violations)


def caught(place: int) -> bool:
    """True when some seed shows the mutant at ``place``, and shows nothing without it."""
    # The known seed first; another change of the drawing of seeds may have moved it.
    mutant = MUTANTS[place]
    for seed in (mutant.caught_by, *range(ENOUGH_SEEDS)):
        if noticed(mutant, seed):
            return not attempt(draw(seed)).violations
    return False


def seeds_to_notice(place: int, most: int) -> tuple[int, int | None]:
    """The place of a mutant among all, and the first seed that shows it, None for none."""
    return place, next((seed for seed in range(most) if noticed(MUTANTS[place], seed)), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.bites", description=__doc__)
    parser.add_argument("--seeds", type=int, default=ENOUGH_SEEDS)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    look = partial(seeds_to_notice, most=options.seeds)
    missed = 0
    print("seeds  planted bug")
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for place, seed in pool.imap(look, range(len(MUTANTS))):
            missed += seed is None
            taken = "none" if seed is None else seed + 1
            print(f"{taken:>5}  {MUTANTS[place].name}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} noticed within {options.seeds} seeds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
