"""From a seed to a schedule. Each seed enables a random subset of faults (swarm testing).

A seed with few kinds of faults has many of each, and so reaches states that a seed with all of
them, each one rare, does not.
"""

from __future__ import annotations

from tests.simulation.actions import Action, Close, FlushAll, Schedule, Send
from tests.simulation.draw_faults import vocabulary
from tests.simulation.draw_poor_networks import in_a_poor_network
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
