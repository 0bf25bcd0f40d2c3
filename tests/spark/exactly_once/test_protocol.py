"""The protocols of both modes on a model of brokers; ``KPROD_SHARD_SEEDS`` random runs."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from kprod.exactly_once.protocol import deliver
from kprod.exactly_once.shard import Shard
from tests.spark.exactly_once import bugs
from tests.spark.exactly_once.model import Attempt, Brokers
from tests.spark.exactly_once.worlds import Calls, Job, Situation
from tests.support.planted import Bug
from tests.support.tier import seeds

SEEDS = seeds("KPROD_SHARD_SEEDS", 200, 1000)
pytestmark = pytest.mark.timeout(600 + SEEDS // 10)
ENOUGH = 2_000
"""Seeds in which every bug is found; most are found in a few."""

JOBS: dict[str, Callable[[int], Job]] = {
    "once": lambda seed: Job(seed, False),
    "atomic": lambda seed: Job(seed, True),
    "changes": lambda seed: Job(seed, False, True, cancels=True),
    "operator": lambda seed: Job(seed, True, operator=True),
    "operator of changes": lambda seed: Job(seed, False, True, cancels=True, operator=True),
}
"""One delivery for all runs, or changes between them, and cancelled drivers."""


@pytest.mark.parametrize("kind", JOBS)
def test_every_row_is_stored_once_and_no_transaction_stays_open(kind: str) -> None:
    """No row of an atomic batch is visible before it is decided."""
    runs = 0
    for seed in range(0, SEEDS, 1 if kind in ("once", "atomic") else 2):
        job = JOBS[kind](seed)
        assert job.play() == [], f"seed {seed}"
        runs += job.runs
    assert runs > SEEDS / 2, "too few drivers were restarted"


SIGNS = {"once": ("is stored",), "changes": ("stays open",), "operator": ("is stored",)}
ATOMIC_SIGNS = ("is stored", "visible", "stays open", "stuck")
"""``stuck``: a batch without its markers is refused for ever."""


@pytest.mark.parametrize(
    ("kind", "bug"),
    [(kind, bug) for kind, found in bugs.OF_JOBS.items() for bug in found],
    ids=lambda one: getattr(one, "name", one),
)
def test_the_model_finds_bugs_of_the_protocols(kind: str, bug: Bug) -> None:
    _find(bug, bug.seed, JOBS[kind], SIGNS.get(kind, ATOMIC_SIGNS))


@pytest.mark.parametrize("situation", Situation, ids=lambda situation: situation.name)
def test_calls_with_one_name_lose_no_rows_without_an_error(situation: Situation) -> None:
    reported = 0
    for seed in range(0, SEEDS, len(Situation)):
        world = Calls(seed, situation)
        assert world.play() == [], f"seed {seed}"
        reported += sum(call.reported for call in world.calls)
    assert reported > SEEDS / len(Situation) / 2


@pytest.mark.parametrize(("name", "situation", "is_atomic", "seed"), bugs.WHERE_CALLS_SHOW)
def test_the_model_finds_bugs_about_job_names(
    name: str, situation: str, is_atomic: bool | None, seed: int
) -> None:
    (bug,) = (bug for bug in bugs.OF_CALLS if bug.name == name)
    where = Situation[situation]
    _find(bug, seed, lambda seed: Calls(seed, where, is_atomic=is_atomic), ("lost", "times"))


def _find(
    bug: Bug, known: int, world: Callable[[int], Job | Calls], signs: tuple[str, ...]
) -> None:
    with bug.planted():
        found = (wrong for seed in (known, *range(ENOUGH)) for wrong in world(seed).play())
        assert any(sign in wrong for wrong in found for sign in signs)


@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.5, 2.0])
def test_tasks_on_a_slow_cluster_do_not_fence_each_other_for_ever(seconds: float) -> None:
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
