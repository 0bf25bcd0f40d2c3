"""The client's end of one simulated connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kprod.errors import ConnectionLost
from kprod.transport.base import Readiness, Transport
from tests.simulation.events import InOrder
from tests.simulation.wires import Answer, Wires

if TYPE_CHECKING:
    from tests.simulation.model.server_end import ServerEnd


class SimTransport(Transport):
    """Accepts bytes while the window has room.

    ``left_of_frame``: bytes of the last request that were not accepted yet.
    """

    counts_every_byte = True

    def __init__(self, wires: Wires, number: int, node_id: int, name: str) -> None:
        self.number = number
        self.node_id = node_id
        self.name = name
        self.frames: deque[bytes] = deque()  # copied when their first byte left
        self.watched = self.write_wanted = True
        self.closed = False
        self._wires = wires
        self._peer: ServerEnd | None = None
        self._failure = ""
        self._inbound = bytearray()
        self._answers = 0  # in _inbound, to their last byte
        self._ended = False
        self._room = wires.window
        self.offered_at: float | None = None  # when the next request was refused for lack of room
        self.left_of_frame = 0
        self._to_broker = InOrder(wires.events)

    def __repr__(self) -> str:
        return f"SimTransport({self.number} to {self.name})"

    # The client's calls -----------------------------------------------------------------------

    def advance(self) -> bool:
        self._check()
        return self._peer is not None

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        self._check()
        if self._peer is None or self._room <= 0:
            if self.offered_at is None and not self.left_of_frame:
                self.offered_at = self._wires.events.now
            return 0
        data = b"".join(buffers)
        taken = min(len(data), self._room)
        self._watch_frames(data, taken)
        self._room -= taken
        self._wires.trace.note("sent", self.number, taken, len(data))
        self._to_peer(self._peer, data[:taken])
        return taken

    def _watch_frames(self, data: bytes, taken: int) -> None:
        at = 0
        while at < taken:
            if not self.left_of_frame:
                self.left_of_frame = 4 + int.from_bytes(data[at : at + 4], "big")
                frame = data[at : at + self.left_of_frame]
                self.frames.append(frame)
                self._wires.watcher.sent(self, frame)
                self.offered_at = None
            step = min(self.left_of_frame, taken - at)
            self.left_of_frame -= step
            at += step

    def _to_peer(self, peer: ServerEnd, data: bytes) -> None:
        poor = self._wires.poor
        passing = poor.breaks_after(len(data))
        arriving = data if passing is None else data[:passing]
        seconds = self._wires.latency() + poor.carry(len(arriving))
        self._to_broker.after(seconds, lambda: peer.arrive(arriving))
        if passing is not None:
            after_data = poor.ends_gracefully()
            self._to_broker.after(seconds, lambda: peer.reset(after_data=after_data))

    def receive(self, limit: int) -> bytes | None:
        self._check()
        data = bytes(self._inbound[:limit])
        del self._inbound[:limit]
        if not self._inbound:
            self._answers = 0
        return data if data or self._ended else None

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.watched = False
        self._inbound.clear()
        self._failure = self._failure or "it is closed"
        self._wires.trace.note("closed", self.number)
        self._wires.watcher.ended(self)
        if self._peer is not None:
            if self._wires.loses_bytes_in_flight():
                self._peer.client_closed()
            else:  # the end of the stream follows the bytes in flight
                self._to_broker.after(0.0, self._peer.client_closed)

    def _check(self) -> None:
        if self._failure:
            raise ConnectionLost(f"the connection to {self.name}: {self._failure}")

    # The broker's end -------------------------------------------------------------------------

    def connected(self, peer: ServerEnd) -> None:
        if not self.closed:
            self._peer = peer
            self._wires.trace.note("connected", self.number)

    def release(self, nbytes: int) -> None:
        """The broker has read: the window has room again."""
        self._room += nbytes

    def deliver(self, data: bytes) -> None:
        if not self.closed and not self._failure:
            self._inbound += data

    def answered(self, answer: Answer) -> None:
        """The delivered bytes complete a response."""
        if not self.closed and not self._failure:
            self._answers += 1
            self._wires.watcher.answered(self, answer)

    def stray(self) -> None:
        """The delivered bytes answer no request."""
        if not self.closed and not self._failure:
            self._wires.watcher.stray(self)

    def changed_on_the_way(self) -> None:
        self._wires.watcher.changed_on_the_way(self)

    def hang_up(self) -> None:
        """End of stream after the delivered bytes."""
        self._ended = True

    def fail(self, cause: str) -> None:
        """A reset: unread bytes are lost."""
        self._failure = self._failure or cause
        if self._answers:
            self._wires.watcher.unread(self, self._answers)
        self._inbound.clear()

    # For the backend --------------------------------------------------------------------------

    def readiness(self) -> Readiness | None:
        if not self.watched:
            return None
        if self._failure:
            return Readiness(self, readable=True, writable=True)
        if self._peer is None:
            return None
        readable = bool(self._inbound) or self._ended
        writable = self.write_wanted and self._room > 0
        return Readiness(self, readable, writable) if readable or writable else None
