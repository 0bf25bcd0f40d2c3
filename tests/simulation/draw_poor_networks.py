"""Some seeds run in a network that breaks connections off or is slow, from the start to the end.

By dice of its own: the other choices of a seed are those they were before such networks were drawn.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.actions import Action, Close, Schedule, Send

SHARE = 0.08
"""Of all seeds: those with such a network."""
OVERHEAD = 400
"""Bytes of a connection until it has carried a batch, beside those of the batch."""
MOST = 30_000
"""Bytes that a batch may grow to: far more than get through."""
BACKLOG = 150_000
"""Of ``buffer_memory``, in which so much can wait that batches do grow."""

PATIENCE = 4
"""So many times longer a record may take where each has to arrive: the slowest of these networks
carry what they get in some 200 seconds, whatever the size of batches."""


def in_a_poor_network(schedule: Schedule) -> Schedule:
    """The schedule, or what the seed makes of it.

    A batch of ``batch_size`` fits through: so in a gentle schedule every record has to arrive.
    Batches may grow to many times what fits, and more records come than such a network takes at
    once.
    """
    rng = random.Random(f"the network of {schedule.seed}")
    if rng.random() >= SHARE:
        return schedule
    setup = schedule.setup
    one_batch = setup.batch_size + OVERHEAD
    kind = rng.choice(("breaks", "breaks", "slow", "both"))
    # Of connections that break at any byte alike, at least one in e^(1/2) carries a whole batch.
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
    """Bursts that make a backlog: batches which cannot leave grow."""
    if any(isinstance(action, Close) for action in schedule.actions):
        return []  # a producer that was closed refuses record by record, a turn for each
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
