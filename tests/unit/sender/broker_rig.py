"""A broker driven by hand: its network in virtual time, and the errors it reported."""

from __future__ import annotations

from typing import Protocol

from kprod.clock import ExponentialBackoff
from kprod.errors import KprodError
from kprod.metrics import ProducerMetrics
from kprod.sender.broker import Broker, BrokerSettings
from kprod.sender.connection_log import ConnectionLog
from kprod.sender.deadlines import Deadlines
from kprod.transport.memory import MemoryTransport, ServerEnd
from kprod.types import Broker as Address
from tests.support.fake_clock import FakeClock
from tests.support.mistaken_backend import MistakenBackend
from tests.support.steady_random import SteadyRandom
from tests.support.virtual_backend import VirtualBackend
from tests.unit.sender.exchanges import Noted, frame

BROKER = Address(7, "host", 9092)
REQUEST = frame(b"a request")
SETTINGS = BrokerSettings(
    client_id="client",
    max_in_flight=5,
    max_frame_bytes=1000,
    request_timeout=30,
    setup=ExponentialBackoff(10, 30, SteadyRandom()),
    idle_timeout=540,
    reconnect=ExponentialBackoff(0.05, 1.0, SteadyRandom()),
    needed=(),
)


class Server(Protocol):
    """What accepts the broker's connections."""

    def accept(self) -> ServerEnd:
        """The far end of a new one."""
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
        self.mistakes = MistakenBackend(self.backend)
        self.errors: list[KprodError] = []
        self.metrics = ProducerMetrics()
        self.broker = Broker(
            BROKER,
            self.mistakes,
            settings,
            self.metrics,
            lambda broker, error: self.errors.append(error),
            ConnectionLog("client"),
            Deadlines(),
            {},
            lambda: None,
        )

    @property
    def transport(self) -> MemoryTransport:
        return self.backend.connections[-1]

    def poll(self) -> None:
        """Move what there is to move, at the present moment."""
        for readiness in self.mistakes.poll(0):
            if readiness.transport is self.broker.transport:
                self.broker.receive(self.clock.now, readable=readiness.readable)

    def connect(self) -> None:
        """Up to the end of the handshake."""
        self.broker.connect(self.clock.now)
        for _ in range(200):
            self.poll()
            if self.broker.can_send:
                return
        raise AssertionError(f"not usable: {self.errors}")

    def send(self) -> Noted:
        exchange = Noted(REQUEST)
        self.broker.send(exchange, self.clock.now)
        return exchange

    def next_event(self) -> float:
        """Seconds until the broker needs a look although no byte moved."""
        return self.broker.next_deadline(self.clock.now) - self.clock.now

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.fire(self.clock.now)
