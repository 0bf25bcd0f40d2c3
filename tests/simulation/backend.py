"""The client's network: simulated connections; time passes in ``poll``."""

from __future__ import annotations

from collections.abc import Callable

from kprod.errors import ConnectionLost
from kprod.transport.base import Backend, Readiness, Transport
from tests.simulation.events import NEVER, EventQueue, SimClock
from tests.simulation.transport import SimTransport
from tests.simulation.wires import Wires

OVERSLEEP = 1e-6  # seconds; no thread is woken exactly on time

Accept = Callable[[SimTransport], None]
"""Starts to connect a transport: an event later it is connected, or fails, or neither."""


class SimBackend(Backend):
    """``poll`` runs events until the client has to act."""

    def __init__(self, clock: SimClock, events: EventQueue, wires: Wires) -> None:
        self.stuck = False  # the client waits, and no event is left
        self.stalled_until = 0.0  # the client's thread gets no CPU time before
        self._clock = clock
        self._events = events
        self._wires = wires
        self._accept: dict[tuple[str, int], tuple[int, Accept]] = {}
        self._transports: dict[SimTransport, None] = {}
        self._count = 0
        self._woken = False

    def listen(self, host: str, port: int, node_id: int, accept: Accept) -> None:
        self._accept[host, port] = node_id, accept

    def dial(self, host: str, port: int) -> SimTransport:
        listener = self._accept.get((host, port))
        if listener is None:
            raise ConnectionLost(f"cannot resolve {host}:{port}")
        node_id, accept = listener
        self._count += 1
        transport = SimTransport(self._wires, self._count, node_id, f"{host}:{port}")
        self._wires.trace.note("dial", self._count, host)
        self._wires.watcher.dialled(transport)
        self._transports[transport] = None
        self._events.after(self._wires.latency(), lambda: accept(transport))
        return transport

    def watch(self, transport: Transport, *, write: bool) -> None:
        ours = self._ours(transport)
        ours.watched, ours.write_wanted = True, write
        self._transports[ours] = None

    def forget(self, transport: Transport) -> None:
        ours = self._ours(transport)
        ours.watched = False
        self._transports.pop(ours, None)

    def poll(self, timeout: float | None) -> list[Readiness]:
        deadline = NEVER if timeout is None else self._clock.now + timeout
        while True:
            if self._clock.now >= self.stalled_until:
                ready = self._ready()
                if ready or self._woken:
                    break
                if self._clock.now >= deadline:
                    self._clock.now += OVERSLEEP
                    break
            limit = deadline
            if self._clock.now < self.stalled_until:
                limit = max(0.0 if deadline == NEVER else deadline, self.stalled_until)
            if self._events.next_at > limit:
                self._clock.now = max(limit, self._clock.now) + OVERSLEEP
            elif len(self._events):
                self._events.run_next()
            else:
                self.stuck = True
                break
        self._woken = False
        return ready

    def _ready(self) -> list[Readiness]:
        found = (transport.readiness() for transport in self._transports)
        return [readiness for readiness in found if readiness is not None]

    def wake(self) -> None:
        self._woken = True

    def abandon(self) -> None:
        self.close()  # a simulation never forks

    def close(self) -> None:
        transports, self._transports = list(self._transports), {}
        for transport in transports:
            transport.close()

    @staticmethod
    def _ours(transport: Transport) -> SimTransport:
        if not isinstance(transport, SimTransport):
            raise TypeError(f"{transport!r} is not simulated")
        return transport
