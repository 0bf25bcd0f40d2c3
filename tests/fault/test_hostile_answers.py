"""Mutated responses to every request of a producer, in simulated time.

The brokers mutate responses for a while, then respond correctly. Every record and every call must
end in time, and new ones must succeed. ``KPROD_CAMPAIGN=long``: 50,000 mutations.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kprod.broker.node import Address
from tests.simulation.actions import Schedule, Send
from tests.simulation.broker_actions import Disturb
from tests.simulation.exactly_once.plan import Burst, Plan, Script
from tests.simulation.exactly_once.setup import TransactionSetup
from tests.simulation.exactly_once.world import TransactionWorld
from tests.simulation.exactly_once.world import run as run_transactions
from tests.simulation.interference import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    END,
    FIND,
    HANDSHAKE,
    IDENTITY,
    METADATA,
    MUTATE,
    PRODUCE,
    Interference,
)
from tests.simulation.setup import Setup
from tests.simulation.surroundings import Outcome
from tests.simulation.world import World
from tests.support.tier import CAMPAIGN

MUTATIONS = 16_000 if CAMPAIGN else 100
SHARES = {
    HANDSHAKE: 0.1,
    METADATA: 0.25,
    FIND: 0.2,
    **dict.fromkeys((PRODUCE, IDENTITY, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END), 0.5),
}
"""Shares of mutated responses; smaller for frequent requests and those of every connection."""
SECONDS = 20.0
ANSWERS = tuple(
    Disturb(at, 0, Interference(api, MUTATE, part=share), times=1000)
    for at in (0.0, SECONDS)  # the second one keeps the simulation running until then
    for api, share in SHARES.items()
)
LONGEST_SILENCE = 310.0
"""Seconds: a mutated response may throttle for minutes."""
PATIENCE: dict[str, Any] = {
    "delivery_timeout_ms": 5000,
    "request_timeout_ms": 1000,
    "metadata_max_age_ms": 700,
}


class Records(World):
    """After the mutations, the brokers have another cluster id.

    A mutated response may have named a leader epoch that the former cluster never reaches.
    """

    def _calm(self) -> None:
        self.cluster.cluster_id = "well"
        self.heal()
        self.events.after(LONGEST_SILENCE, super()._calm)


class Transactions(TransactionWorld):
    """The same with transactions."""

    _is_well = False

    def _calm(self) -> None:
        if not self._is_well:
            self._is_well = True
            self.brokers.become("well")
            for node in self.nodes:
                node.crash(0.0, lose_tail=False, silently=False)
            self.heal()
            self.events.after(LONGEST_SILENCE, super()._calm)

    def takes_abort(self, _producer: object) -> bool:
        """A mutated response may have told any producer that it is fenced."""
        return False

    def _judge(self) -> None:
        """Results are not checked: mutated responses make them wrong."""


def records(seed: int) -> Outcome:
    sends = (Send(at / 2, 0, 3) for at in range(int(2 * SECONDS)))
    world = Records(Schedule(seed, Setup(**PATIENCE), (*ANSWERS, *sends)))
    outcome = world.run()
    if world.sender.identity.fatal is not None:  # it sends nothing any more
        return outcome._replace(violations=[])
    ours = [each for each in outcome.violations if each.startswith(("I6", "I14"))]
    lost = [each.uid for each in world.app.history.accepted if each.probe and not each.stored]
    return outcome._replace(violations=[*ours, *(f"all is well, but {uid}" for uid in lost)])


def transactions(level: int) -> Callable[[int], Outcome]:
    plans = 20 * (Plan(before=0.3, bursts=(Burst(0.0, 0, 2),), offsets=True),)
    setup = TransactionSetup(level=level, **PATIENCE)
    return lambda seed: run_transactions(Script(seed, setup, plans, ANSWERS), Transactions)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "attempt",
    [records, transactions(1), transactions(2)],
    ids=["records", "transactions of protocol 1", "transactions of protocol 2"],
)
def test_producers_recover_from_mutated_responses(attempt: Callable[[int], Outcome]) -> None:
    mutations = 0
    for seed in count():
        outcome = attempt(seed)
        assert outcome.violations == [], seed
        mutations += outcome.counts["mutations"]
        if mutations >= MUTATIONS:
            break
    print(f"{mutations} mutations, {seed + 1} producers")


def test_a_moved_coordinator_is_found_without_a_topic_in_use(tmp_path: Path) -> None:
    """The known address is unreachable, and nothing else requests metadata again."""
    world = TransactionWorld(Script(1, TransactionSetup(), plans=()), tmp_path)
    state = world.brokers.state
    state.node_started(0, {"PLAINTEXT": Address("gone", 9092)})
    right = {"PLAINTEXT": Address("node-0", 9092)}
    world.events.after(3.0, lambda: state.node_started(0, right))
    assert world.run().violations == []
