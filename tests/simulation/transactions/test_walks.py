"""Whatever is lost, late or repeated: whole transactions or nothing, and offsets with them."""

from __future__ import annotations

import os

import pytest

from tests.simulation.transactions.bugs import BUGS, planted
from tests.simulation.transactions.walk import Walk

SEEDS = int(os.environ.get("KPROD_TRANSACTION_SEEDS", "9500"))
FIRST = int(os.environ.get("KPROD_TRANSACTION_FIRST_SEED", "0"))
CHUNK = 500
ENOUGH_SEEDS = 3000


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, CHUNK))
def test_no_reader_sees_part_of_a_transaction(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FIRST + SEEDS)):
        violations = Walk(seed).run()
        assert not violations, f"seed {seed}: {violations}"


def test_a_seed_always_does_the_same() -> None:
    def fates(seed: int) -> list[str]:
        walk = Walk(seed)
        walk.run()
        return walk.fates

    assert [fates(seed) for seed in range(20)] == [fates(seed) for seed in range(20)]


def test_the_seeds_reach_every_fate() -> None:
    found: set[str] = set()
    for seed in range(100):
        walk = Walk(seed)
        walk.run()
        found.update(walk.fates)
    assert {"committed", "aborted", "unknown"} <= found


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_noticed(bug: type) -> None:
    seeds = (KNOWN.get(bug.__name__, 0), *range(ENOUGH_SEEDS))
    assert any(Walk(seed, planted(bug)).run() for seed in seeds)


KNOWN = {"TrustsLateEnds": 1342}
"""Seeds that notice what few others do."""
