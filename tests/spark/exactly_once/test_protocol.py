"""The protocol of a shard against a model of brokers, tasks and drivers, by seeds.

``KPROD_SHARD_SEEDS`` says how many (2,000).
"""

from __future__ import annotations

import os

import pytest

from kprod.spark.exactly_once.protocol import deliver
from tests.spark.exactly_once.model import World
from tests.spark.exactly_once.mutants import MUTANTS, Mutant

SEEDS = int(os.environ.get("KPROD_SHARD_SEEDS", "2000"))
ENOUGH = 2_000
"""Seeds in which every wrong version is found; most are found in a few."""


def test_every_row_is_there_once() -> None:
    runs = 0
    for seed in range(SEEDS):
        world = World(seed, deliver)
        assert world.play() == [], f"seed {seed}"
        runs += world.runs
    assert runs > SEEDS / 2, "drivers died, and were started with other numbers of shards"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_wrong_versions_are_found(mutant: Mutant) -> None:
    worlds = (World(seed, mutant.delivers, mutant.named, **mutant.how) for seed in range(ENOUGH))
    assert any("is there" in wrong for world in worlds for wrong in world.play())
