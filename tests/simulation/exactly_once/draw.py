"""From a seed to a script. Each seed enables a random part of what can go wrong (swarm testing)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation import draw_setup
from tests.simulation.broker_actions import Crash, CutAll, Disturb, MoveLeader, Pause, SlowWires
from tests.simulation.exactly_once.plan import (
    COORDINATOR,
    GROUP_COORDINATOR,
    Burst,
    Incident,
    MoveCoordinator,
    Plan,
    Script,
    Upgrade,
)
from tests.simulation.exactly_once.setup import TransactionSetup
from tests.simulation.interference import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    END,
    FIND,
    HANDSHAKE,
    IDENTITY,
    METADATA,
    PRODUCE,
    Interference,
)

COORDINATED = (FIND, IDENTITY, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END, END)
LOST = ("cut-request", "cut-response", "lose-response", "stall", "delay")
MALFORMED = ("swallow", "duplicate", "wrong-id", "garbage", "swap")
RETRIABLE = (14, 15, 16, 51)
RETRIABLE_RECORDS = (6, 7, 14, 16, 19, 51, 56)
FINAL_RECORDS = (2, 10, 29, 45, 47, 48, 87, 120, -1)

Draw = Callable[["Dice"], list[Incident]]


class Dice(draw_setup.Dice):
    setup: TransactionSetup

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.gentle = self.chance(0.15)
        drawn = _setup(self.rng, gentle=self.gentle)
        # By number: the draws of known seeds must stay the same.
        self.setup = replace(drawn, fences_late_commits=seed % 2 == 1)
        self.length = self.rng.choice((0.1, 0.5, 2.0, 5.0))

    def node(self) -> int:
        nodes: list[int] = [COORDINATOR, GROUP_COORDINATOR, *range(self.setup.nodes)]
        return self.rng.choice(nodes)


def draw(seed: int) -> Script:
    dice = Dice(seed)
    plans = tuple(_plan(dice) for _ in range(dice.rng.randrange(1, 5)))
    incidents: list[Incident] = []
    if not dice.gentle:
        kinds = [kind for kind in VOCABULARY if dice.chance(0.35)] or VOCABULARY[:1]
        for _ in range(dice.rng.randrange(1, 10)):
            incidents += dice.rng.choice(kinds)(dice)
    incidents.sort(key=lambda each: each.at)
    return Script(seed, dice.setup, plans, tuple(incidents), dice.gentle)


def _setup(rng: random.Random, *, gentle: bool) -> TransactionSetup:
    level = rng.choice((1, 2, 2))
    old = level == 1 and rng.random() < 0.5
    return TransactionSetup(
        nodes=rng.choice((1, 2, 3)),
        partitions=rng.choice(((1,), (2,), (3,), (1, 2))),
        produce_version=rng.choice((3, 7, 9, 11)) if old else rng.choice((12, 13)),
        metadata_version=13,
        latency=rng.choice((0.0005, 0.002, 0.01)),
        window=1 << 20,
        lost_on_close=rng.choice((0.0, 0.0, 0.5)),
        linger_ms=rng.choice((0, 5)),
        batch_size=rng.choice((150, 600)),
        max_in_flight=rng.choice((1, 5, 5)),
        compiled_send=rng.random() < 0.8,
        request_timeout_ms=rng.choice((300, 1000)),
        delivery_timeout_ms=60_000 if gentle else rng.choice((1200, 4000)),
        max_block_ms=60_000 if gentle else rng.choice((500, 4000)),
        retry_backoff_ms=rng.choice((10, 50)),
        retry_backoff_max_ms=200,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        level=level,
        find_version=rng.choice((1, 3, 4, 6)),
        identity_version=rng.choice((3, 4, 5)),
        add_version=rng.choice((0, 2, 3)) if old else 3,
        end_version=rng.choice((0, 2, 3, 4)) if old else 5,
        offsets_version=rng.choice((3, 4)) if old else 5,
        coordinated_epoch=rng.choice((-1, -1, -1, -1, 32764)),
        marker_delay_ms=rng.choice((0, 2, 20)),
        transaction_timeout_ms=60_000 if gentle else rng.choice((60_000, 60_000, 1500)),
    )


def _plan(dice: Dice) -> Plan:
    rng = dice.rng
    bursts = tuple(_burst(dice) for _ in range(rng.choice((0, 1, 1, 2, 3))))
    block = dice.chance(0.3)
    timeout = None if dice.gentle else rng.choice((None, None, 0.0, 0.03))
    offsets = dice.chance(0.5)
    return Plan(
        before=round(rng.choice((0.0, 0.0, dice.length / 3)), 4),
        bursts=bursts,
        offsets=offsets,
        stale=offsets and dice.chance(0.1),
        end=rng.choice(("commit", "commit", "commit", "abort")),
        block=block,
        timeout=timeout,
        fate="" if block or dice.chance(0.75) else rng.choice(("kill", "freeze", "close")),
    )


def _burst(dice: Dice) -> Burst:
    rng = dice.rng
    pause = round(rng.choice((0.0, 0.0, dice.length / 4)), 4)
    topic = rng.randrange(len(dice.setup.partitions))
    return Burst(pause, topic, rng.choice((1, 3, 10)), rng.choice((10, 60)), dice.chance(0.7))


# Faults --------------------------------------------------------------------------------------


def _disturbed(
    apis: Sequence[str],
    hows: Sequence[str],
    *,
    codes: Sequence[int] = (0,),
    times: Sequence[int] = (1,),
    at: int | None = None,
) -> Draw:
    """One of these requests meets one of these faults, at any node unless ``at`` is given."""

    def disturb(dice: Dice) -> list[Incident]:
        rng = dice.rng
        api, how, code = rng.choice(apis), rng.choice(hows), rng.choice(codes)
        part = rng.choice((0.0, 1.0, round(rng.random(), 3)))
        fault = Interference(api, how, code, part, dice.span())
        node = dice.node() if at is None else at
        return [Disturb(dice.when(), node, fault, rng.choice(times))]

    return disturb


def _late_ends(dice: Dice) -> list[Incident]:
    """The end of a transaction is carried out after its repetition."""
    seconds = round(dice.setup.request_timeout_ms / 1000 * dice.rng.uniform(1.0, 1.5), 4)
    return [Disturb(dice.when(), COORDINATOR, Interference(END, "stall", seconds=seconds))]


def _move_coordinator(dice: Dice) -> list[Incident]:
    to = dice.rng.randrange(dice.setup.nodes)
    return [MoveCoordinator(dice.when(), to, dice.chance(0.3))]


def _move_leader(dice: Dice) -> list[Incident]:
    to, place = dice.rng.randrange(dice.setup.nodes), (dice.rng.randrange(2), dice.rng.randrange(3))
    return [MoveLeader(dice.when(), *place, to)]


def _crash(dice: Dice) -> list[Incident]:
    return [Crash(dice.when(), dice.node(), dice.span(), silently=dice.chance(0.3))]


def _upgrade(dice: Dice) -> list[Incident]:
    if dice.setup.end_version < 5:
        return []
    at = dice.when()
    return [Upgrade(at), CutAll(round(at + 0.01, 4), dice.node())]


VOCABULARY: tuple[Draw, ...] = (
    _disturbed((*COORDINATED, PRODUCE), LOST, times=(1, 1, 2)),
    _disturbed((END,), ("cut-response", "lose-response", "delay", "stall"), at=COORDINATOR),
    _late_ends,
    _disturbed((PRODUCE,), LOST, times=(1, 3)),
    _disturbed((METADATA, HANDSHAKE), LOST),
    _disturbed((*COORDINATED, PRODUCE), MALFORMED),
    _disturbed(
        COORDINATED, ("error-before", "error-before", "error-after"), codes=RETRIABLE, times=(1, 4)
    ),
    _disturbed((PRODUCE,), ("error-before",), codes=RETRIABLE_RECORDS, times=(1, 1, 4)),
    _disturbed((PRODUCE,), ("error-after",), codes=(7, 20)),
    _disturbed((PRODUCE,), ("error-before",), codes=FINAL_RECORDS),
    _move_coordinator,
    _move_coordinator,
    _move_leader,
    _crash,
    lambda dice: [Pause(dice.when(), dice.node(), dice.span())],
    lambda dice: [CutAll(dice.when(), dice.node(), dice.chance(0.3))],
    lambda dice: [SlowWires(dice.when(), dice.span(), dice.rng.choice((5.0, 50.0)))],
    _upgrade,
)
