"""From a seed to a schedule. Each seed enables a random part of what can go wrong (swarm testing).

A seed with few kinds of faults has many of each, and so reaches states that a seed with all of
them, each one rare, does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.actions import (
    Action,
    Close,
    Crash,
    CutAll,
    Disturb,
    FlushAll,
    ForgetProducers,
    HideTopic,
    MoveLeader,
    Pause,
    Recreate,
    Send,
    ShutDoor,
    SlowWires,
    StallClient,
)
from tests.simulation.draw_setup import draw_setup
from tests.simulation.interference import (
    DISHONEST,
    HANDSHAKE,
    HONEST,
    IDENTITY,
    METADATA,
    PRODUCE,
    Interference,
)
from tests.simulation.schedule import Schedule
from tests.simulation.setup import Setup

PASSING_BEFORE = (3, 5, 6, 7, 9, 14, 15, 16, 19, 51, 56, 72, 74, 75, 89)
FINAL_BEFORE = (-1, 2, 10, 17, 18, 21, 29, 31, 32, 42, 43, 44, 45, 47, 48, 59, 76, 87, 1234)
PASSING_AFTER = (6, 7, 20, 56)
FINAL_AFTER = (-1, 999)
PASSING_IDENTITY = (7, 14, 15, 16, 51)
PASSING_METADATA = (3, 5)

Draw = Callable[["Dice"], Action]


class Dice:
    """The choices of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.gentle = self.rng.random() < 0.4
        self.setup: Setup = draw_setup(self.rng, gentle=self.gentle)
        self.length = self.rng.choice((0.1, 0.5, 2.0, 6.0))

    def when(self) -> float:
        return round(self.rng.uniform(0.0, self.length), 4)

    def span(self) -> float:
        """How long something lasts: from a moment to longer than a request may take."""
        timeout = self.setup.request_timeout_ms / 1000
        return round(self.rng.choice((0.01, 0.1, 0.5 * timeout, 1.2 * timeout, 3 * timeout)), 4)

    def node(self) -> int:
        return self.rng.randrange(self.setup.nodes)

    def topic(self) -> int:
        return self.rng.randrange(len(self.setup.partitions))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share


def draw(seed: int) -> Schedule:
    dice = Dice(seed)
    rng = dice.rng
    kinds = [kind for kind in _faults(dice) if dice.chance(0.3)]
    actions = [_send(dice) for _ in range(rng.randrange(3, 12))]
    if kinds:
        actions += [rng.choice(kinds)(dice) for _ in range(rng.randrange(1, 12))]
    if dice.chance(0.3):
        actions += [FlushAll(dice.when()) for _ in range(rng.randrange(1, 4))]
    if not dice.gentle and dice.chance(0.15):
        actions.append(Close(dice.when(), rng.choice((0.0, 0.05, 1.0))))
    actions.sort(key=lambda action: action.at)
    return Schedule(seed, dice.setup, tuple(actions), dice.gentle)


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


def _faults(dice: Dice) -> list[Draw]:
    """The vocabulary of a seed; what may end a record in an error is not for gentle ones."""
    setup = dice.setup
    honest: list[Draw] = [_disturbance(PRODUCE, how) for how in HONEST]
    kinds: list[Draw] = [
        *honest,
        _disturbed_control,
        _pause,
        _crash,
        _cut_all,
        _shut_door,
        _slow_wires,
        _move_leader,
        _hide_topic,
        _stall_client,
        lambda dice: ForgetProducers(dice.when()),
    ]
    if setup.produce_version >= 13 and setup.metadata_version >= 10:
        kinds.append(lambda dice: Recreate(dice.when(), dice.topic(), dice.rng.choice((0.01, 0.4))))
    if not dice.gentle:
        kinds += [_disturbance(PRODUCE, how) for how in DISHONEST]
        kinds += [_disturbed_control_badly]
    return kinds


def _disturbance(api: str, how: str) -> Draw:
    def disturb(dice: Dice) -> Action:
        return Disturb(dice.when(), dice.node(), _interference(dice, api, how), _times(dice))

    return disturb


def _times(dice: Dice) -> int:
    return dice.rng.choice((1, 1, 1, 2, 4, 30))


def _interference(dice: Dice, api: str, how: str) -> Interference:
    rng = dice.rng
    code = 0
    if how == "error-before":
        code = rng.choice(PASSING_BEFORE if dice.gentle or dice.chance(0.5) else FINAL_BEFORE)
    elif how == "error-after":
        code = rng.choice(PASSING_AFTER if dice.gentle or dice.chance(0.6) else FINAL_AFTER)
    return Interference(
        api,
        how,
        code,
        rng.choice((0.0, 1.0, round(rng.random(), 3))),
        dice.span() if how in ("stall", "delay", "throttle") else 0.0,
        rng.choice((None, 0, 1)),
    )


def _disturbed_control(dice: Dice) -> Action:
    rng = dice.rng
    api = rng.choice((METADATA, HANDSHAKE, IDENTITY))
    how = rng.choice(("cut-request", "cut-response", "lose-response", "stall", "error-before"))
    code = 0
    if how == "error-before":
        if api == HANDSHAKE:
            how = "delay"
        code = rng.choice(PASSING_IDENTITY if api == IDENTITY else PASSING_METADATA)
    fault = Interference(api, how, code, round(rng.random(), 3), dice.span())
    return Disturb(dice.when(), dice.node(), fault, _times(dice))


def _disturbed_control_badly(dice: Dice) -> Action:
    api = dice.rng.choice((METADATA, HANDSHAKE, IDENTITY))
    fault = Interference(api, dice.rng.choice(("swallow", "duplicate", "wrong-id", "garbage")))
    return Disturb(dice.when(), dice.node(), fault)


def _pause(dice: Dice) -> Action:
    return Pause(dice.when(), dice.node(), dice.span())


def _crash(dice: Dice) -> Action:
    gap = dice.rng.choice((0.01, 0.1, 0.6))
    lose_tail, silently = dice.chance(0.5), dice.chance(0.3)
    return Crash(dice.when(), dice.node(), dice.span(), gap, lose_tail, silently)


def _cut_all(dice: Dice) -> Action:
    return CutAll(dice.when(), dice.node(), dice.chance(0.3))


def _shut_door(dice: Dice) -> Action:
    return ShutDoor(dice.when(), dice.node(), dice.span(), dice.chance(0.3))


def _slow_wires(dice: Dice) -> Action:
    return SlowWires(dice.when(), dice.span(), dice.rng.choice((5.0, 50.0, 500.0)))


def _move_leader(dice: Dice) -> Action:
    rng = dice.rng
    gap = rng.choice((0.0, 0.02, 0.3))
    return MoveLeader(
        dice.when(), dice.topic(), rng.randrange(3), dice.node(), gap, dice.chance(0.5)
    )


def _hide_topic(dice: Dice) -> Action:
    return HideTopic(dice.when(), dice.topic(), dice.span(), dice.rng.choice((3, 5)))


def _stall_client(dice: Dice) -> Action:
    return StallClient(dice.when(), dice.span())
