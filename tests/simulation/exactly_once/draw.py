"""From a seed to a script. Each seed enables a random part of what can go wrong (swarm testing)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.broker_actions import Crash, CutAll, Disturb, MoveLeader, Pause, SlowWires
from tests.simulation.exactly_once.plan import (
    COORDINATOR,
    GROUP_COORDINATOR,
    Burst,
    Happening,
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

ASKED = (FIND, IDENTITY, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END, END)
LOST = ("cut-request", "cut-response", "lose-response", "stall", "delay")
SPOILT = ("swallow", "duplicate", "wrong-id", "garbage", "swap")
PASSING = (14, 15, 16, 51)
PASSING_RECORDS = (6, 7, 14, 16, 19, 51, 56)
FINAL_RECORDS = (2, 10, 29, 45, 47, 48, 87, 120, -1)

Draw = Callable[["Dice"], list[Happening]]


class Dice:
    """Every choice comes from one generator, in the order in which it is made."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.gentle = self.chance(0.15)
        drawn = _setup(self.rng, gentle=self.gentle)
        # Not drawn: every seed that was known before stays the one it was.
        self.setup = replace(drawn, fences_late_commits=seed % 2 == 1)
        self.length = self.rng.choice((0.1, 0.5, 2.0, 5.0))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def when(self) -> float:
        return round(self.rng.uniform(0.0, self.length), 4)

    def span(self) -> float:
        timeout = self.setup.request_timeout_ms / 1000
        return round(self.rng.choice((0.01, 0.1, 0.5 * timeout, 1.2 * timeout)), 4)

    def node(self) -> int:
        nodes: list[int] = [COORDINATOR, GROUP_COORDINATOR, *range(self.setup.nodes)]
        return self.rng.choice(nodes)


def draw(seed: int) -> Script:
    dice = Dice(seed)
    plans = tuple(_plan(dice) for _ in range(dice.rng.randrange(1, 5)))
    happenings: list[Happening] = []
    if not dice.gentle:
        kinds = [kind for kind in VOCABULARY if dice.chance(0.35)] or [_lose]
        for _ in range(dice.rng.randrange(1, 10)):
            happenings += dice.rng.choice(kinds)(dice)
    happenings.sort(key=lambda each: each.at)
    return Script(seed, dice.setup, plans, tuple(happenings), dice.gentle)


def _setup(rng: random.Random, *, gentle: bool) -> TransactionSetup:
    level = rng.choice((1, 2, 2))
    old = level == 1 and rng.random() < 0.5
    return TransactionSetup(
        nodes=rng.choice((1, 2, 3)),
        partitions=rng.choice(((1,), (2,), (3,), (1, 2))),
        replication=rng.choice((0.0, 0.002, 0.02)),
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


# What goes wrong ------------------------------------------------------------------------------


def _lose(dice: Dice) -> list[Happening]:
    api = dice.rng.choice((*ASKED, PRODUCE))
    fault = _fault(dice, api, dice.rng.choice(LOST))
    return [Disturb(dice.when(), dice.node(), fault, dice.rng.choice((1, 1, 2)))]


def _lose_ends(dice: Dice) -> list[Happening]:
    """The first end of a transaction that is seen is answered to nobody, or late."""
    how = dice.rng.choice(("cut-response", "lose-response", "delay", "stall"))
    return [Disturb(dice.when(), COORDINATOR, _fault(dice, END, how))]


def _late_ends(dice: Dice) -> list[Happening]:
    """The end of a transaction is carried out after the one that was asked for in its place."""
    seconds = round(dice.setup.request_timeout_ms / 1000 * dice.rng.uniform(1.0, 1.5), 4)
    return [Disturb(dice.when(), COORDINATOR, Interference(END, "stall", seconds=seconds))]


def _lose_records(dice: Dice) -> list[Happening]:
    how = dice.rng.choice(LOST)
    return [Disturb(dice.when(), dice.node(), _fault(dice, PRODUCE, how), dice.rng.choice((1, 3)))]


def _lose_control(dice: Dice) -> list[Happening]:
    fault = _fault(dice, dice.rng.choice((METADATA, HANDSHAKE)), dice.rng.choice(LOST))
    return [Disturb(dice.when(), dice.node(), fault)]


def _spoil(dice: Dice) -> list[Happening]:
    api = dice.rng.choice((*ASKED, PRODUCE))
    return [Disturb(dice.when(), dice.node(), _fault(dice, api, dice.rng.choice(SPOILT)))]


def _refuse(dice: Dice) -> list[Happening]:
    """What may pass is refused for a moment, or carried out and said to be refused."""
    rng = dice.rng
    api = rng.choice((*ASKED, PRODUCE))
    codes: tuple[int, ...] = PASSING_RECORDS if api == PRODUCE else PASSING
    how = rng.choice(("error-before", "error-before", "error-after"))
    if how == "error-after" and api == PRODUCE:
        codes = (7, 20)
    fault = Interference(api, how, rng.choice(codes))
    return [Disturb(dice.when(), dice.node(), fault, rng.choice((1, 1, 4)))]


def _refuse_records(dice: Dice) -> list[Happening]:
    fault = Interference(PRODUCE, "error-before", dice.rng.choice(FINAL_RECORDS))
    return [Disturb(dice.when(), dice.node(), fault)]


def _fault(dice: Dice, api: str, how: str) -> Interference:
    part = dice.rng.choice((0.0, 1.0, round(dice.rng.random(), 3)))
    return Interference(api, how, part=part, seconds=dice.span())


def _move_coordinator(dice: Dice) -> list[Happening]:
    to = dice.rng.randrange(dice.setup.nodes)
    return [MoveCoordinator(dice.when(), to, dice.chance(0.3))]


def _move_leader(dice: Dice) -> list[Happening]:
    rng = dice.rng
    gap = rng.choice((0.0, 0.02, 0.3))
    to, place = rng.randrange(dice.setup.nodes), (rng.randrange(2), rng.randrange(3))
    return [MoveLeader(dice.when(), *place, to, gap, dice.chance(0.5))]


def _crash(dice: Dice) -> list[Happening]:
    gap = dice.rng.choice((0.01, 0.1, 0.6))
    lose_tail, silently = dice.chance(0.5), dice.chance(0.3)
    return [Crash(dice.when(), dice.node(), dice.span(), gap, lose_tail, silently)]


def _upgrade(dice: Dice) -> list[Happening]:
    if dice.setup.end_version < 5:
        return []
    at = dice.when()
    return [Upgrade(at), CutAll(round(at + 0.01, 4), dice.node())]


VOCABULARY: tuple[Draw, ...] = (
    _lose,
    _lose_ends,
    _late_ends,
    _lose_records,
    _lose_control,
    _spoil,
    _refuse,
    _refuse_records,
    _move_coordinator,
    _move_coordinator,
    _move_leader,
    _crash,
    lambda dice: [Pause(dice.when(), dice.node(), dice.span())],
    lambda dice: [CutAll(dice.when(), dice.node(), dice.chance(0.3))],
    lambda dice: [SlowWires(dice.when(), dice.span(), dice.rng.choice((5.0, 50.0)))],
    _upgrade,
)
