"""The network and its time: what the worlds of both simulations have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.backend import SimBackend
from tests.simulation.broker_actions import Crash
from tests.simulation.events import EventQueue, SimClock, Trace
from tests.simulation.model.cluster import BrokerAddress
from tests.simulation.model.host import Host
from tests.simulation.setup import Setup
from tests.simulation.wires import Wires

MOST_LATE_EVENTS = 20_000


class Outcome(NamedTuple):
    """What one run came to; ``digest`` is the same for every run of what determines it."""

    violations: list[str]
    digest: str
    counts: Counter[str]


class Surroundings(ABC):
    """What actions ask of a world. ``nodes`` are made by the kind of world."""

    nodes: Sequence[Host]

    def __init__(self, setup: Setup, seed: int) -> None:
        self.clock = SimClock()
        self.events = EventQueue(self.clock)
        self.trace = Trace(self.clock)
        self.wires = Wires(setup, self.events, self.trace, seed)
        self.addresses = [
            BrokerAddress(number, f"node-{number}", 9092) for number in range(setup.nodes)
        ]
        self._topics = setup.topics

    def new_backend(self) -> SimBackend:
        """A client's network, in which every broker listens."""
        backend = SimBackend(self.clock, self.events, self.wires)
        for node, address in zip(self.nodes, self.addresses, strict=True):
            backend.listen(address.host, address.port, node.node_id, node.accept)
        return backend

    def node(self, number: int) -> Host:
        return self.nodes[number % len(self.nodes)]

    def slow_down(self, factor: float, seconds: float) -> None:
        self.wires.slow = factor
        self.events.after(seconds, self._full_speed)

    def _full_speed(self) -> None:
        self.wires.slow = 1.0

    def topic(self, number: int) -> str:
        return self._topics[number % len(self._topics)]

    @abstractmethod
    def move_leader(self, topic: int, partition: int, to: int, gap: float, **losing: bool) -> None:
        """Another node leads a partition, after ``gap`` seconds without a leader."""

    def crashed(self, node: Host, crash: Crash) -> None:  # noqa: B027  (often nothing)
        """What follows from that a broker is down."""

    def heal(self) -> None:
        """Faults are over: from here on everything must come to its end."""
        for node in self.nodes:
            node.armed.clear()
            node.restart()
            node.resume()
            node.door.open()
        self._full_speed()

    def comes_to_rest(self) -> bool:
        """Requests that the client has given up may still reach a broker."""
        for _ in range(MOST_LATE_EVENTS):
            if not len(self.events):
                return True
            self.events.run_next()
        return False
