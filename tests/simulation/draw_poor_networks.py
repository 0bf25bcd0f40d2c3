"""Some seeds run in a network that breaks connections or is slow during the whole run.

From another generator: the other choices of known seeds must stay the same.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.actions import Action, Close, Schedule, Send

SHARE = 0.08
"""The share of seeds with such a network."""
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
    rng = random.Random(f"the network of {schedule.seed}")
    if rng.random() >= SHARE:
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
