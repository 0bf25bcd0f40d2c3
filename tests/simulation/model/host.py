"""The host of a broker: its connections and failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from kprod.wire.versions import ApiKey
from tests.simulation.interference import Interference
from tests.simulation.model.server_end import ServerEnd
from tests.simulation.transport import SimTransport
from tests.simulation.wires import Wires

REFUSED = "Connection refused"


def refuse(transport: SimTransport) -> None:
    transport.fail(REFUSED)


@dataclass(slots=True)
class Armed:
    fault: Interference
    times: int


@dataclass(slots=True)
class ListenSocket:
    """``closed`` refuses connections, ``silent`` does not answer the attempt."""

    closed: bool = False
    silent: bool = False

    def open(self) -> None:
        self.closed = self.silent = False


class Host(ABC):
    """A broker of either simulation carries out the requests; ``armed`` faults disturb some."""

    def __init__(self, node_id: int, service: float, wires: Wires) -> None:
        self.node_id = node_id
        self.paused = False
        self.listener = ListenSocket()
        self.service = service
        self.connections: dict[ServerEnd, None] = {}
        self.armed: list[Armed] = []
        self._wires = wires
        self._resumed: list[Callable[[], None]] = []

    @property
    @abstractmethod
    def up(self) -> bool:
        """Whether it runs."""

    @abstractmethod
    def carry_out(self, end: ServerEnd, message: bytes, fault: Interference | None) -> None:
        """Have ``end`` respond to a request, correctly except for ``fault``."""

    # Connections ------------------------------------------------------------------------------

    def accept(self, transport: SimTransport) -> None:
        if self.listener.silent or transport.closed:
            return
        if not self.up or self.listener.closed:
            refuse(transport)
            return
        end = ServerEnd(self, transport, self._wires)
        self.connections[end] = None
        transport.connected(end)

    def forget(self, end: ServerEnd) -> None:
        self.connections.pop(end, None)

    def drop_connections(self, *, silently: bool) -> None:
        for end in list(self.connections):
            if silently:
                end.vanish()
            else:
                end.reset()

    # Failures ---------------------------------------------------------------------------------

    def arm(self, fault: Interference, times: int) -> None:
        self.armed.append(Armed(fault, times))

    def take_fault(self, api: int) -> Interference | None:
        for armed in self.armed:
            if armed.fault.api == ApiKey(api).name:
                armed.times -= 1
                if not armed.times:
                    self.armed.remove(armed)
                return armed.fault
        return None

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        waiting, self._resumed = self._resumed, []
        for call in waiting:
            call()
        for end in list(self.connections):
            end.read()

    def when_resumed(self, call: Callable[[], None]) -> None:
        self._resumed.append(call)

    def crash(self, gap: float, *, lose_tail: bool, silently: bool) -> None:
        """Down until ``restart``; another broker leads after ``gap`` seconds if there is one."""
        if self.up:
            self._resumed.clear()
            self.paused = False
            self.drop_connections(silently=silently)
            self._stop(gap, lose_tail=lose_tail)

    @abstractmethod
    def _stop(self, gap: float, *, lose_tail: bool) -> None:
        """Other brokers become leaders of its partitions."""

    @abstractmethod
    def restart(self, *, from_snapshot: bool = False) -> None:
        """``from_snapshot``: it does not read its logs, and knows less about producers."""

    def remember_little(self) -> None:  # noqa: B027  (only one simulation needs it)
        """As after a quick restart: only the last batch of each producer is known."""
