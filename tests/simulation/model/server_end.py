"""The broker's end of one connection: frames in, one at a time, and responses out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.events import InOrder
from tests.simulation.interference import MUTATE, Interference
from tests.simulation.transport import SimTransport
from tests.simulation.wires import EMPTY_ANSWER, Answer, Wires

if TYPE_CHECKING:
    from tests.simulation.model.host import Host

RESET = "Connection reset by peer"


class ServerEnd:
    """Handles one request at a time, as Kafka does: answers come in order."""

    def __init__(self, node: Host, transport: SimTransport, wires: Wires) -> None:
        self.alive = True
        self._node = node
        self._transport = transport
        self._wires = wires
        self._socket = bytearray()  # arrived, not read yet
        self._inbox = bytearray()
        self._busy = False
        self._deaf = False  # drops everything silently
        self._client_left = False
        self._forgets = False  # producers, when the connection ends
        self._fault: Interference | None = None
        self._fault_drawn = False
        self._held: list[tuple[bytes, Answer]] = []
        self._to_client = InOrder(wires.events)

    # From the client --------------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        if self.alive and not self._deaf:
            self._socket += data
            self.read()

    def client_closed(self) -> None:
        self._client_left = True
        if self._deaf or not (self._socket or self._inbox or self._busy):
            self._die()

    @property
    def orphaned(self) -> bool:
        """The client has closed, but its request may still be carried out."""
        return self.alive and self._transport.closed

    def read(self) -> None:
        if self._busy or not self.alive or self._node.paused:
            return
        if self._socket:
            self._inbox += self._socket
            self._transport.release(len(self._socket))
            self._socket.clear()
        self._next_frame()
        if self._client_left and not self._busy:
            self._die()

    def _next_frame(self) -> None:
        if len(self._inbox) < 12:
            return
        size = 4 + int.from_bytes(self._inbox[:4], "big")
        if not self._fault_drawn:
            self._fault = self._node.take_fault(int.from_bytes(self._inbox[4:6], "big"))
            self._fault_drawn = True
        fault = self._fault
        if fault is not None and fault.how == "cut-request":
            if len(self._inbox) >= max(12, int(size * fault.part)):
                self.reset()
        elif len(self._inbox) >= size:
            frame = bytes(self._inbox[:size])
            del self._inbox[:size]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        if frame != self._transport.frames.popleft():
            self._transport.changed_on_the_way()
        fault, self._fault = self._fault, None
        self._fault_drawn = False
        self._busy = True
        extra = fault.seconds if fault is not None and fault.how == "stall" else 0.0
        self._wires.events.after(
            self._node.service + extra, lambda: self._carry_out(frame[4:], fault)
        )

    def _carry_out(self, frame: bytes, fault: Interference | None) -> None:
        if not self.alive:
            return
        if self._node.paused:
            self._node.when_resumed(lambda: self._carry_out(frame, fault))
            return
        self._node.carry_out(self, frame, fault)

    # To the client ----------------------------------------------------------------------------

    def respond(
        self,
        frame: bytes,
        fault: Interference | None,
        answer: Answer = EMPTY_ANSWER,
    ) -> None:
        """Answer a request; ``fault`` may disturb the answer."""
        if not self.alive:
            return
        how = fault.how if fault is not None else ""
        if how == "lose-response":
            self._deaf = True
            return
        if fault is not None and how == "delay" and fault.seconds:
            self._wires.events.after(fault.seconds, lambda: self.respond(frame, None, answer))
            return
        if fault is not None and how == "cut-response":
            size = int(len(frame) * fault.part)
            self._send(frame[:size], answer if size == len(frame) else None)
            self.reset(after_data=True)
            return
        if fault is not None and how == MUTATE:
            frame = self._wires.mutated(frame, fault.part)
        self._write(how, frame, answer)
        self.proceed()

    def _write(self, how: str, frame: bytes, answer: Answer) -> None:
        if how == "swap":
            self._held.append((frame, answer))
            return
        if how == "wrong-id":
            self._send(frame[:4] + bytes([frame[4] ^ 0x40]) + frame[5:], stray=True)
        elif how == "garbage":
            half = frame[4 : 4 + max(6, len(frame) // 2)]
            self._send(len(half).to_bytes(4, "big") + half, EMPTY_ANSWER, stray=True)
        elif how == "amnesia":
            self._forgets = True
        elif how != "swallow":
            self._send(frame, answer)
        if how == "duplicate":
            self._send(frame, stray=True)
        held, self._held = self._held, []
        for late in held:
            self._send(*late)

    def _send(self, data: bytes, answer: Answer | None = None, *, stray: bool = False) -> None:
        transport = self._transport

        def deliver() -> None:
            if not self._deaf:
                transport.deliver(data)
                if answer is not None:
                    transport.answered(answer)
                if stray:
                    transport.stray()

        self._to_client.after(self._wires.latency(), deliver)

    def proceed(self) -> None:
        self._busy = False
        self.read()

    # The end ----------------------------------------------------------------------------------

    def reset(self, *, after_data: bool = False) -> None:
        """Break the connection; ``after_data``: after the client has received all data."""
        self._die()
        transport, latency = self._transport, self._wires.latency()
        if after_data:
            self._to_client.after(latency, transport.hang_up)
        else:
            self._wires.events.after(latency, lambda: transport.fail(RESET))

    def vanish(self) -> None:
        """The broker's host is gone: the client gets no packet."""
        self._deaf = True
        self._die()

    def _die(self) -> None:
        self.alive = False
        self._node.forget(self)
        if self._forgets:
            self._node.remember_little()
