"""What may happen to brokers and wires in a run of either simulation: values, like all actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tests.simulation.events import EventQueue
from tests.simulation.interference import Interference
from tests.simulation.model.node import Node


class BrokerWorld(Protocol):
    """What these actions ask of a world."""

    @property
    def events(self) -> EventQueue: ...

    def node(self, number: int) -> Node: ...

    def slow_down(self, factor: float, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Disturb:
    """The next ``times`` requests of that kind at a broker meet ``fault``."""

    at: float
    node: int
    fault: Interference
    times: int = 1

    def apply(self, world: BrokerWorld) -> None:
        world.node(self.node).arm(self.fault, self.times)


@dataclass(frozen=True, slots=True)
class Pause:
    """A broker stops in the middle of everything (SIGSTOP) and goes on later."""

    at: float
    node: int
    seconds: float

    def apply(self, world: BrokerWorld) -> None:
        node = world.node(self.node)
        node.pause()
        world.events.after(self.seconds, node.resume)


@dataclass(frozen=True, slots=True)
class CutAll:
    """Every connection to a broker breaks; the broker goes on."""

    at: float
    node: int
    silently: bool = False

    def apply(self, world: BrokerWorld) -> None:
        world.node(self.node).drop_connections(silently=self.silently)


@dataclass(frozen=True, slots=True)
class SlowWires:
    """Every byte takes ``factor`` times as long."""

    at: float
    seconds: float
    factor: float

    def apply(self, world: BrokerWorld) -> None:
        world.slow_down(self.factor, self.seconds)
