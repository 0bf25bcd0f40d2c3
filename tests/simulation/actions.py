"""Actions of a run: of the cluster, the network and the application.

An action is a value. Its ``repr`` is Python, so that a failing schedule can be pasted into a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tests.simulation.app import KEYS, Intent
from tests.simulation.setup import Setup

if TYPE_CHECKING:
    from tests.simulation.world import World


class Action(Protocol):
    """``at`` is seconds after the start."""

    @property
    def at(self) -> float: ...

    def apply(self, world: World) -> None: ...


# The application ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """A burst. ``keys``: "none", "few" (partitioned by murmur2) or "explicit" (round robin)."""

    at: float
    topic: int
    records: int
    size: int = 20
    keys: str = "none"
    headers: bool = False
    echoes: bool = False
    raises: bool = False

    def apply(self, world: World) -> None:
        world.app.send(self._intent(world, number) for number in range(self.records))

    def _intent(self, world: World, number: int) -> Intent:
        topic = self.topic % len(world.setup.partitions)
        explicit = number % world.setup.partitions[topic] if self.keys == "explicit" else None
        headers = ((f"h{number % 3}", b"x" * number), ("empty", None)) if self.headers else ()
        return Intent(
            world.setup.topics[topic],
            KEYS[number % len(KEYS)] if self.keys == "few" else None,
            explicit,
            self.size,
            headers,
            1000 + number if self.headers else None,
            self.echoes and number == 0,
            self.raises,
        )


@dataclass(frozen=True, slots=True)
class FlushAll:
    at: float

    def apply(self, world: World) -> None:
        world.app.flush()


@dataclass(frozen=True, slots=True)
class StallClient:
    at: float
    seconds: float

    def apply(self, world: World) -> None:
        world.stalled += self.seconds
        until = world.clock.now + self.seconds
        world.backend.stalled_until = max(world.backend.stalled_until, until)


@dataclass(frozen=True, slots=True)
class Close:
    """The application closes the producer early and waits at most ``timeout`` seconds."""

    at: float
    timeout: float

    def apply(self, world: World) -> None:
        world.close_timeout = self.timeout
        world.backend.wake()


# Brokers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopAccepting:
    """A broker refuses new connections, or (``silently``) does not answer them."""

    at: float
    node: int
    seconds: float
    silently: bool = False

    def apply(self, world: World) -> None:
        listener = world.node(self.node).listener
        listener.closed, listener.silent = not self.silently, self.silently
        world.events.after(self.seconds, listener.open)


# The cluster ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fragile:
    """The logs of a topic lose all records at the next sequence out of order.

    So an unclean election comes between a rejection and the proof that the batch was stored.
    """

    at: float
    topic: int

    def apply(self, world: World) -> None:
        found = world.cluster.topics.get(world.topic(self.topic))
        for partition in found.partitions if found is not None else ():
            partition.log.fragile = True


@dataclass(frozen=True, slots=True)
class HideTopic:
    """Metadata answers have error ``code`` for a topic for a while."""

    at: float
    topic: int
    seconds: float
    code: int = 3

    def apply(self, world: World) -> None:
        name, hidden = world.topic(self.topic), world.cluster.hidden
        hidden[name] = self.code
        world.events.after(self.seconds, lambda: hidden.pop(name, None))


@dataclass(frozen=True, slots=True)
class HideBroker:
    """Metadata answers leave out a broker for a while, though it leads partitions."""

    at: float
    node: int
    seconds: float

    def apply(self, world: World) -> None:
        unlisted = world.cluster.unlisted
        unlisted.add(self.node)
        world.events.after(self.seconds, lambda: unlisted.discard(self.node))


@dataclass(frozen=True, slots=True)
class Grow:
    at: float
    topic: int

    def apply(self, world: World) -> None:
        name = world.topic(self.topic)
        if name in world.cluster.topics:
            world.cluster.grow(name)


@dataclass(frozen=True, slots=True)
class Recreate:
    """A topic is deleted, and created with another id ``gap`` seconds later.

    ``single``: with one partition, however many it had.
    """

    at: float
    topic: int
    gap: float = 0.2
    single: bool = False

    def apply(self, world: World) -> None:
        name, cluster = world.topic(self.topic), world.cluster
        if name in cluster.topics:
            count = 1 if self.single else len(cluster.topics[name].partitions)
            cluster.delete(name)
            world.events.after(self.gap, lambda: cluster.recreate(name, count))


@dataclass(frozen=True, slots=True)
class ForgetProducers:
    """Brokers forget every producer, as after idle days; only when nothing is in flight."""

    at: float

    def apply(self, world: World) -> None:
        world.forget_producers()


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that determines one run. ``gentle``: no action may make a record fail."""

    seed: int
    setup: Setup
    actions: tuple[Action, ...]
    gentle: bool = False

    @property
    def calm_at(self) -> float:
        """When faults end: shortly after the last action."""
        return max((action.at for action in self.actions), default=0.0) + 0.5
