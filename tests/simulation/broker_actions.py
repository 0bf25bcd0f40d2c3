"""Actions of brokers and network, for both simulations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.interference import Interference

if TYPE_CHECKING:
    from tests.simulation.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Disturb:
    """The next ``times`` requests of that kind at a broker meet ``fault``."""

    at: float
    node: int
    fault: Interference
    times: int = 1

    def apply(self, world: Surroundings) -> None:
        world.node(self.node).arm(self.fault, self.times)


@dataclass(frozen=True, slots=True)
class Pause:
    at: float
    node: int
    seconds: float

    def apply(self, world: Surroundings) -> None:
        node = world.node(self.node)
        node.pause()
        world.events.after(self.seconds, node.resume)


@dataclass(frozen=True, slots=True)
class CutAll:
    """Every connection to a broker breaks; the broker goes on."""

    at: float
    node: int
    silently: bool = False

    def apply(self, world: Surroundings) -> None:
        world.node(self.node).drop_connections(silently=self.silently)


@dataclass(frozen=True, slots=True)
class SlowWires:
    at: float
    seconds: float
    factor: float

    def apply(self, world: Surroundings) -> None:
        world.slow_down(self.factor, self.seconds)


@dataclass(frozen=True, slots=True)
class Crash:
    """A broker dies; another one leads after ``gap`` seconds. ``silently``: its host is gone.

    ``from_snapshot``: it restarts knowing only the last batch of each producer.
    ``elsewhere``: it restarts at another address.
    """

    at: float
    node: int
    seconds: float
    gap: float = 0.1
    lose_tail: bool = False
    silently: bool = False
    from_snapshot: bool = False
    elsewhere: bool = False

    def apply(self, world: Surroundings) -> None:
        node = world.node(self.node)
        node.crash(self.gap, lose_tail=self.lose_tail, silently=self.silently)
        world.crashed(node, self)
        world.events.after(self.seconds, partial(node.restart, from_snapshot=self.from_snapshot))


@dataclass(frozen=True, slots=True)
class MoveLeader:
    """``from_snapshot``: the new leader knows only the last batch of each producer."""

    at: float
    topic: int
    partition: int
    to: int
    gap: float = 0.05
    lose_tail: bool = False
    from_snapshot: bool = False

    def apply(self, world: Surroundings) -> None:
        world.move_leader(
            self.topic,
            self.partition,
            self.to,
            self.gap,
            lose_tail=self.lose_tail,
            from_snapshot=self.from_snapshot,
        )
