"""The protocols of both modes against a model of brokers, tasks and drivers, by seeds.

``KPROD_SHARD_SEEDS`` says how many.
"""

from __future__ import annotations

import heapq
import random

import pytest

from kprod.exactly_once.protocol import deliver
from kprod.exactly_once.shard import Shard
from tests.spark.exactly_once.atomic_model import AtomicWorld, Version
from tests.spark.exactly_once.atomic_mutants import (
    ATOMIC_MUTANTS,
    MUTANTS_OF_CHANGES,
    MUTANTS_OF_OPERATORS,
)
from tests.spark.exactly_once.model import Attempt, Brokers, World
from tests.spark.exactly_once.mutants import MUTANTS, Mutant
from tests.spark.exactly_once.names_model import NamesWorld, Rules, Situation
from tests.spark.exactly_once.names_mutants import NAMES_MUTANTS, NamesMutant
from tests.support.tier import seeds

SEEDS = seeds("KPROD_SHARD_SEEDS", 200, 1000)
pytestmark = pytest.mark.timeout(600 + SEEDS // 10)  # each seed is a world of its own
ENOUGH = 2_000
"""Seeds in which every wrong version is found; most are found in a few."""
KNOWN = {"layout_without_fencing": 324, "losers_aborted_by_epoch": 588, "copy_looks_once": 2102}
"""Seeds that find what few others do: they are the first to be tried."""


def test_every_row_is_there_once() -> None:
    runs = 0
    for seed in range(SEEDS):
        world = World(seed, deliver)
        assert world.play() == [], f"seed {seed}"
        runs += world.runs
    assert runs > SEEDS / 2, "drivers died, and were started with other numbers of shards"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_wrong_versions_are_found(mutant: Mutant) -> None:
    seeds = (KNOWN.get(mutant.name, 0), *range(ENOUGH))
    worlds = (World(seed, mutant.delivers, mutant.named, **mutant.how) for seed in seeds)
    assert any("is there" in wrong for world in worlds for wrong in world.play())


def test_every_batch_is_there_as_a_whole() -> None:
    """Once, and nothing of it before it is decided."""
    runs = 0
    for seed in range(SEEDS):
        world = AtomicWorld(seed, Version())
        assert world.play() == [], f"seed {seed}"
        runs += world.runs
    assert runs > 2 * SEEDS, "drivers died, or failed, and were started with other shards"


@pytest.mark.parametrize("mutant", ATOMIC_MUTANTS, ids=lambda mutant: mutant.name)
def test_wrong_versions_of_atomic_batches_are_found(mutant: Version) -> None:
    worlds = (AtomicWorld(seed, mutant) for seed in (KNOWN.get(mutant.name, 0), *range(ENOUGH)))
    found = (wrong for world in worlds for wrong in world.play())
    signs = (
        "is there",
        "visible",
        "stays open",
        "stuck",
    )  # a batch without its markers is refused for ever
    assert any(sign in wrong for wrong in found for sign in signs)


def test_cancelled_drivers_and_changed_delivery_leave_nothing_open() -> None:
    for seed in range(0, SEEDS, 2):
        world = AtomicWorld(seed, Version(), changes=True)
        assert world.play() == [], f"seed {seed}"


@pytest.mark.parametrize("mutant", MUTANTS_OF_CHANGES, ids=lambda mutant: mutant.name)
def test_wrong_versions_that_leave_something_open_are_found(mutant: Version) -> None:
    worlds = (AtomicWorld(seed, mutant, changes=True) for seed in range(ENOUGH))
    assert any("stays open" in wrong for world in worlds for wrong in world.play())


def test_an_operator_who_ends_transactions_by_hand_loses_and_doubles_nothing() -> None:
    """In every second seed drivers are cancelled and the delivery changes, too."""
    for seed in range(SEEDS):
        world = AtomicWorld(seed, Version(), changes=seed % 2 == 1, operator=True)
        assert world.play() == [], f"seed {seed}"


@pytest.mark.parametrize("mutant", MUTANTS_OF_OPERATORS, ids=lambda mutant: mutant.name)
def test_wrong_versions_of_ending_by_hand_are_found(mutant: Version) -> None:
    worlds = (AtomicWorld(seed, mutant, operator=True) for seed in range(ENOUGH))
    assert any("is there" in wrong for world in worlds for wrong in world.play())


@pytest.mark.parametrize("situation", Situation, ids=lambda situation: situation.name)
def test_calls_under_one_name_lose_nothing_in_silence(situation: Situation) -> None:
    """Each situation has its share of the seeds."""
    told = 0
    for seed in range(0, SEEDS, len(Situation)):
        world = NamesWorld(seed, situation, Rules())
        assert world.play() == [], f"seed {seed}"
        told += sum(call.told for call in world.calls)
    assert told > SEEDS / len(Situation) / 2


@pytest.mark.parametrize(
    "mutant", NAMES_MUTANTS, ids=lambda mutant: f"{mutant.rules.name}-{mutant.situation.name}"
)
def test_wrong_versions_about_names_are_found(mutant: NamesMutant) -> None:
    worlds = (
        NamesWorld(seed, mutant.situation, mutant.rules) for seed in (mutant.seed, *range(ENOUGH))
    )
    assert any("lost" in wrong or "times" in wrong for world in worlds for wrong in world.play())


@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.5, 2.0])
def test_tasks_on_a_slow_cluster_do_not_fence_each_other_for_ever(seconds: float) -> None:
    """Each step takes ``seconds``: taking over the layout and committing it are five of them."""
    brokers = Brokers(random.Random(1))
    due: list[tuple[float, int, Attempt]] = []
    for number in range(1, 6):  # the first shard, which would not wait at all, has no rows
        shard = Shard(prefix="p", job="j", number=number, batch=0, shards=6, topic="t")
        attempt = Attempt(deliver(shard, 30.0), shard, [(0, number)], brokers)
        heapq.heappush(due, (number * seconds, number, attempt))
    while due:
        now, number, attempt = heapq.heappop(due)
        assert now < 1 + 60 * seconds, f"shard {number} has not ended"
        attempt.move()
        brokers.tick()
        if not attempt.ended:
            pause = attempt.pause
            heapq.heappush(due, (now + (seconds if pause is None else pause), number, attempt))
        assert attempt.error is None
