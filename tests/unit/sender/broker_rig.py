"""A broker in virtual time, stepped by the test."""

from __future__ import annotations

from typing import Protocol

from kprod.errors import KprodError
from kprod.metrics import ProducerMetrics
from kprod.sender.broker import Broker
from kprod.sender.connection import BrokerSettings
from kprod.sender.network import Network
from kprod.transport.memory import MemoryTransport, ServerEnd
from kprod.types import Broker as Address
from tests.support.fake_clock import FakeClock
from tests.support.raising_backend import RaisingBackend
from tests.support.steady_random import SteadyRandom
from tests.support.virtual_backend import VirtualBackend
from tests.unit.sender.exchanges import SETTINGS, RecordedExchange, frame

BROKER = Address(7, "host", 9092)
REQUEST = frame(b"a request")


class Server(Protocol):
    """Accepts the broker's connections."""

    def accept(self) -> ServerEnd:
        """The server's end of a new connection."""
        ...


class BrokerRig:
    """A broker, its network in virtual time, and the errors it reported."""

    def __init__(
        self,
        server: Server | None,
        backend: VirtualBackend | None = None,
        settings: BrokerSettings = SETTINGS,
    ) -> None:
        self.clock = FakeClock()
        listeners = {} if server is None else {("host", 9092): server.accept}
        self.backend = backend or VirtualBackend(self.clock, listeners)
        self.mistakes = RaisingBackend(self.backend)
        self.errors: list[KprodError] = []
        self.metrics = ProducerMetrics()
        network = Network(
            self.mistakes,
            [],
            settings,
            self.metrics,
            self.clock,
            lambda broker, error: self.errors.append(error),
            SteadyRandom(),
        )
        self.broker = Broker(BROKER, network)

    @property
    def transport(self) -> MemoryTransport:
        return self.backend.connections[-1]

    def poll(self) -> None:
        """Exchange all pending bytes without advancing the clock."""
        for readiness in self.mistakes.poll(0):
            if readiness.transport is self.broker.transport:
                self.broker.receive(self.clock.now, readable=readiness.readable)

    def connect(self) -> None:
        """Connect and complete the handshake."""
        self.broker.connect(self.clock.now)
        for _ in range(200):
            self.poll()
            if self.broker.can_send:
                return
        raise AssertionError(f"not usable: {self.errors}")

    def send(self) -> RecordedExchange:
        exchange = RecordedExchange(REQUEST)
        self.broker.send(exchange, self.clock.now)
        return exchange

    def next_event(self) -> float:
        """Seconds until the broker's next deadline."""
        return self.broker.next_deadline(self.clock.now) - self.clock.now

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.fire(self.clock.now)
