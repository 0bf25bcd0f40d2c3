"""From a seed to a schedule. Each seed enables a random subset of faults (swarm testing).

A seed with few kinds of faults has many of each, and so reaches states that a seed with all of
them, each one rare, does not.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.actions import Action, Close, FlushAll, Schedule, Send
from tests.simulation.draw_faults import vocabulary
from tests.simulation.draw_setup import Dice


def draw(seed: int) -> Schedule:
    dice = Dice(seed)
    rng = dice.rng
    kinds = [kind for kind in vocabulary(dice) if dice.chance(0.3)]
    actions = [_send(dice) for _ in range(rng.randrange(3, 12))]
    dice.busy = [action.at for action in actions]
    if kinds:
        for _ in range(rng.randrange(1, 12)):
            actions += rng.choice(kinds)(dice)
    if dice.chance(0.3):
        actions += [FlushAll(dice.when()) for _ in range(rng.randrange(1, 4))]
    if not dice.gentle and dice.chance(0.15):
        actions.append(Close(dice.when(), rng.choice((0.0, 0.05, 1.0))))
    actions.sort(key=lambda action: action.at)
    return in_a_poor_network(Schedule(seed, dice.setup, tuple(actions), dice.gentle))


def _send(dice: Dice) -> Action:
    rng = dice.rng
    return Send(
        dice.when(),
        dice.topic(),
        rng.choice((1, 2, 5, 10, 20, 30)),
        rng.choice((5, 20, 60, 150)),
        rng.choice(("none", "few", "explicit")),
        headers=dice.chance(0.1),
        echoes=dice.chance(0.1),
        raises=dice.chance(0.05),
    )


POOR_NETWORKS = 0.08
"""The share of seeds whose network breaks connections or is slow during the whole run."""
OVERHEAD = 400
"""Bytes of a connection before its first batch."""
MOST = 30_000
"""Bytes that a batch may grow to: more than the network carries."""
BACKLOG = 150_000
"""A ``buffer_memory`` large enough for batches to grow."""

PATIENCE = 4
"""Factor on the timeout of gentle seeds: the slowest network needs 200 seconds for its records."""


def in_a_poor_network(schedule: Schedule) -> Schedule:
    """The schedule, for some seeds in a poor network and with more records.

    It carries a batch of ``batch_size``: so in a gentle schedule every record has to arrive.
    """
    # From another generator: the other choices of known seeds must stay the same.
    rng = random.Random(f"the network of {schedule.seed}")
    if rng.random() >= POOR_NETWORKS:
        return schedule
    setup = schedule.setup
    one_batch = setup.batch_size + OVERHEAD
    kind = rng.choice(("breaks", "breaks", "slow", "both"))
    # At least one connection in e^(1/2) carries a whole batch.
    mean_bytes = 0 if kind == "slow" else one_batch * rng.choice((2, 4, 16))
    in_time = one_batch / (setup.request_timeout_ms / 1000)
    rate = 0 if kind == "breaks" else int(in_time * rng.choice((5, 20, 100)))
    poor = replace(
        setup,
        mean_bytes=mean_bytes,
        rate=rate,
        growth=max(3, MOST // setup.batch_size),
        buffer_memory=rng.choice((setup.buffer_memory, BACKLOG, BACKLOG)),
        delivery_timeout_ms=setup.delivery_timeout_ms * (PATIENCE if schedule.gentle else 1),
    )
    actions = [*schedule.actions, *_crowd(rng, schedule)]
    actions.sort(key=lambda action: action.at)
    return replace(schedule, setup=poor, actions=tuple(actions))


def _crowd(rng: random.Random, schedule: Schedule) -> list[Action]:
    if any(isinstance(action, Close) for action in schedule.actions):
        return []  # a closed producer rejects each record in its own iteration
    last = max(action.at for action in schedule.actions)
    return [
        Send(
            round(rng.uniform(0.0, last), 4),
            rng.randrange(len(schedule.setup.partitions)),
            rng.choice((30, 100, 200)),
            rng.choice((20, 60, 150)),
        )
        for _ in range(rng.randrange(1, 6))
    ]
