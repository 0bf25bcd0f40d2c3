"""The faults of a run, and how a seed draws them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.actions import (
    Action,
    ForgetProducers,
    Fragile,
    Grow,
    HideBroker,
    HideTopic,
    Recreate,
    Send,
    StallClient,
    StopAccepting,
)
from tests.simulation.broker_actions import Crash, CutAll, Disturb, MoveLeader, Pause, SlowWires
from tests.simulation.draw_setup import Dice
from tests.simulation.interference import (
    DISHONEST,
    HANDSHAKE,
    HONEST,
    IDENTITY,
    METADATA,
    PRODUCE,
    Interference,
)

DOUBTFUL = ("cut-response", "lose-response", "error-after", "delay")
RETRIABLE_BEFORE = (3, 5, 6, 7, 9, 14, 15, 16, 19, 51, 56, 72, 74, 75, 89)
FINAL_BEFORE = (-1, 2, 17, 21, 29, 31, 32, 42, 43, 44, 48, 76, 87, 90, 1234)
SEQUENCE_BEFORE = (45, 45, 47, 59)
TOO_LARGE_BEFORE = (10, 10, 18)
RETRIABLE_AFTER = (6, 7, 20, 56)
FINAL_AFTER = (-1, 999)
RETRIABLE_IDENTITY = (7, 14, 15, 16, 51)
MISSING = (3, 5)
SLOWER = (5.0, 50.0, 500.0)

Draw = Callable[[Dice], list[Action]]


def vocabulary(dice: Dice) -> list[Draw]:
    """Gentle seeds get no fault that may make a record fail."""
    setup = dice.setup
    kinds: list[Draw] = [
        *(_disturbance(how) for how in HONEST),
        _series,
        _series,
        _disturbed_control,
        lambda dice: [Pause(dice.when_busy(), dice.node(), dice.span())],
        _crash,
        lambda dice: [CutAll(dice.when_busy(), dice.node(), dice.chance(0.3))],
        lambda dice: [StopAccepting(dice.when_busy(), dice.node(), dice.span(), dice.chance(0.3))],
        lambda dice: [SlowWires(dice.when_busy(), dice.span(), dice.rng.choice(SLOWER))],
        _move_leader,
        lambda dice: [
            HideTopic(dice.when_busy(), dice.topic(), dice.span(), dice.rng.choice(MISSING))
        ],
        lambda dice: [HideBroker(dice.when_busy(), dice.node(), dice.span())],
        lambda dice: [Grow(dice.when_busy(), dice.topic())],
        lambda dice: [StallClient(dice.when_busy(), dice.span())],
        _forget_producers,
        _forget_producers,
    ]
    if setup.produce_version >= 13 and setup.metadata_version >= 10:
        kinds.append(_recreate)
    if not dice.gentle and setup.idempotent:
        kinds.append(_forgetful)
    if not dice.gentle:
        kinds += [
            *(_disturbance(how) for how in DISHONEST),
            _disturbed_control_badly,
        ]
    return kinds


# Requests -------------------------------------------------------------------------------------


def _disturbance(how: str) -> Draw:
    def disturb(dice: Dice) -> list[Action]:
        return [Disturb(dice.when_busy(), dice.node(), _interference(dice, how), _times(dice))]

    return disturb


def _series(dice: Dice) -> list[Action]:
    """Consecutive requests are disturbed: a retry meets the next fault."""
    at, node, partition = dice.when_busy(), dice.node(), dice.rng.choice((None, None, 0, 1))
    hows = [dice.rng.choice(HONEST) for _ in range(dice.rng.randrange(0, 4))]
    if len(hows) < 2 or dice.chance(0.5):
        hows[:0] = [dice.rng.choice(DOUBTFUL), "error-before"]
    faults = [replace(_interference(dice, how), partition=partition) for how in hows]
    return [Disturb(at, node, fault) for fault in faults]


def _times(dice: Dice) -> int:
    return dice.rng.choice((1, 1, 1, 2, 4, 30))


def _interference(dice: Dice, how: str) -> Interference:
    rng = dice.rng
    return Interference(
        PRODUCE,
        how,
        _code(dice, how),
        rng.choice((0.0, 1.0, round(rng.random(), 3))),
        dice.span() if how in ("stall", "delay", "throttle") else 0.0,
        rng.choice((None, 0, 1)),
    )


def _code(dice: Dice, how: str) -> int:
    kinds: tuple[tuple[int, ...], ...] = ((0,),)
    if how == "error-before":
        kinds = (
            RETRIABLE_BEFORE,
            RETRIABLE_BEFORE,
            FINAL_BEFORE,
            SEQUENCE_BEFORE,
            TOO_LARGE_BEFORE,
        )
    elif how == "error-after":
        kinds = (RETRIABLE_AFTER, FINAL_AFTER)
    return dice.rng.choice(kinds[0] if dice.gentle else dice.rng.choice(kinds))


def _disturbed_control(dice: Dice) -> list[Action]:
    rng = dice.rng
    api = rng.choice((METADATA, HANDSHAKE, IDENTITY))
    how = rng.choice(("cut-request", "cut-response", "lose-response", "stall", "error-before"))
    code = 0
    if how == "error-before":
        if api == HANDSHAKE:
            how = "delay"
        code = rng.choice(RETRIABLE_IDENTITY if api == IDENTITY else MISSING)
    fault = Interference(api, how, code, round(rng.random(), 3), dice.span())
    return [Disturb(dice.when_busy(), dice.node(), fault, _times(dice))]


def _disturbed_control_badly(dice: Dice) -> list[Action]:
    api = dice.rng.choice((METADATA, HANDSHAKE, IDENTITY))
    fault = Interference(api, dice.rng.choice(("swallow", "duplicate", "wrong-id", "garbage")))
    if dice.chance(0.05):
        fault = Interference(IDENTITY, "error-before", dice.rng.choice((31, 53)))
    return [Disturb(dice.when_busy(), dice.node(), fault)]


# Brokers and wires ----------------------------------------------------------------------------


def _crash(dice: Dice) -> list[Action]:
    gap = dice.rng.choice((0.01, 0.1, 0.6))
    lose_tail, silently = dice.chance(0.5), dice.chance(0.3)
    from_snapshot = not dice.gentle and dice.chance(0.5)
    elsewhere = dice.setup.nodes > 1 and dice.chance(0.2)
    at, node, seconds = dice.when_busy(), dice.node(), dice.span()
    return [Crash(at, node, seconds, gap, lose_tail, silently, from_snapshot, elsewhere)]


# The cluster ----------------------------------------------------------------------------------


def _move_leader(dice: Dice) -> list[Action]:
    rng = dice.rng
    gap, lose_tail = rng.choice((0.0, 0.02, 0.3)), dice.chance(0.5)
    place = dice.topic(), rng.randrange(3)
    from_snapshot = not dice.gentle and dice.chance(0.3)
    return [MoveLeader(dice.when_busy(), *place, dice.node(), gap, lose_tail, from_snapshot)]


def _forgetful(dice: Dice) -> list[Action]:
    """Several batches in flight get no answer, and the broker remembers only the last one.

    In half of the cases an unclean election then removes its log.
    """
    topic, at = dice.topic(), dice.when()
    fault = Interference(PRODUCE, "amnesia", partition=None)
    actions: list[Action] = [
        Send(at, topic, 3, 20, "explicit"),
        Disturb(round(at + 0.5, 4), dice.node(), fault),
        Send(round(at + 0.51, 4), topic, 30, 60, "explicit"),
    ]
    if dice.chance(0.5):
        actions.append(Fragile(at, topic))
    return actions


def _recreate(dice: Dice) -> list[Action]:
    at, topic, gap = dice.when_busy(), dice.topic(), dice.rng.choice((0.01, 0.4))
    burst = _burst(dice, at + gap, topic)
    single = not dice.gentle and dice.chance(0.3)
    return [Recreate(at, topic, gap, single), *burst]


def _forget_producers(dice: Dice) -> list[Action]:
    at = dice.when()
    return [ForgetProducers(at), *_burst(dice, at, dice.topic())]


def _burst(dice: Dice, at: float, topic: int) -> list[Action]:
    """Several batches at once, when a log does not know the producer."""
    after = round(at + dice.rng.choice((0.01, 0.2, 0.7)), 4)
    burst: list[Action] = [Send(after, topic, 30, 60, dice.rng.choice(("none", "explicit")))]
    if dice.chance(0.5):
        burst.append(Disturb(at, dice.node(), _interference(dice, "error-before")))
    return burst
