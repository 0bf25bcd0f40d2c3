"""What both simulations share: clock, network, faults."""

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
    """The result of one run; equal runs have the same ``digest``."""

    violations: list[str]
    digest: str
    counts: Counter[str]


class Surroundings(ABC):
    """The interface that actions use. Subclasses create ``nodes``."""

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
        """A broker went down."""

    def heal(self) -> None:
        """End all faults: from here on everything must finish."""
        for node in self.nodes:
            node.armed.clear()
            node.restart()
            node.resume()
            node.listener.open()
        self._full_speed()

    def settles(self) -> bool:
        """Run the remaining events: abandoned requests may still reach a broker."""
        for _ in range(MOST_LATE_EVENTS):
            if not len(self.events):
                return True
            self.events.run_next()
        return False
