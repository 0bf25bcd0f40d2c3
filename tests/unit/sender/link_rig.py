"""A link driven by hand: its network in virtual time, and the errors it reported."""

from __future__ import annotations

from typing import Protocol

from kprod.clock import ExponentialBackoff
from kprod.errors import KprodError
from kprod.metrics import ProducerMetrics
from kprod.sender.connection_log import ConnectionLog
from kprod.sender.link import BrokerLink, LinkSettings
from kprod.transport.memory import MemoryTransport, ServerEnd
from kprod.types import Broker
from tests.support.fake_clock import FakeClock
from tests.support.mistaken_backend import MistakenBackend
from tests.support.steady_random import SteadyRandom
from tests.support.virtual_backend import VirtualBackend
from tests.unit.sender.exchanges import Noted, frame

BROKER = Broker(7, "host", 9092)
REQUEST = frame(b"a request")
SETTINGS = LinkSettings(
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
    """What accepts the link's connections."""

    def accept(self) -> ServerEnd:
        """The far end of a new one."""
        ...


class LinkRig:
    """A link, its network in virtual time, and the errors it reported."""

    def __init__(
        self,
        server: Server | None,
        backend: VirtualBackend | None = None,
        settings: LinkSettings = SETTINGS,
    ) -> None:
        self.clock = FakeClock()
        listeners = {} if server is None else {("host", 9092): server.accept}
        self.backend = backend or VirtualBackend(self.clock, listeners)
        self.mistakes = MistakenBackend(self.backend)
        self.errors: list[KprodError] = []
        self.metrics = ProducerMetrics()
        self.link = BrokerLink(
            BROKER,
            self.mistakes,
            settings,
            self.metrics,
            lambda broker, error: self.errors.append(error),
            ConnectionLog("client"),
        )

    @property
    def transport(self) -> MemoryTransport:
        return self.backend.connections[-1]

    def poll(self) -> None:
        """Move what there is to move, at the present moment."""
        for readiness in self.mistakes.poll(0):
            if readiness.transport is self.link.transport:
                self.link.moved(
                    self.clock.now, readable=readiness.readable, writable=readiness.writable
                )

    def connect(self) -> None:
        """Up to the end of the handshake."""
        self.link.connect(self.clock.now)
        for _ in range(200):
            self.poll()
            if self.link.usable(self.clock.now):
                return
        raise AssertionError(f"not usable: {self.errors}")

    def send(self) -> Noted:
        exchange = Noted(REQUEST)
        self.link.send(exchange, self.clock.now)
        return exchange

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.link.check_deadlines(self.clock.now)
