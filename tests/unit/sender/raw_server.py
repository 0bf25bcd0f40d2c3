"""A server that records requests as bytes; the test chooses the responses."""

from __future__ import annotations

from kprod.transport.memory import ServerEnd
from kprod.wire.framing import FrameReader
from tests.unit.sender.exchanges import handshake_answer


class RawServer:
    """Accepts connections, and answers their handshakes if ``handshakes``."""

    def __init__(self, *, handshakes: bool = True) -> None:
        self.handshakes = handshakes
        self.ends: list[RawEnd] = []

    def accept(self) -> ServerEnd:
        self.ends.append(RawEnd(self.handshakes))
        return self.ends[-1]


class RawEnd:
    """One accepted connection; ``frames`` are the received messages without their sizes."""

    def __init__(self, handshakes: bool) -> None:
        self.frames: list[bytes] = []
        self._handshakes = handshakes
        self._reader = FrameReader()

    def receive(self, data: bytes) -> bytes:
        first = not self.frames
        self.frames += [bytes(message) for message in self._reader.feed(data)]
        return handshake_answer(0) if self._handshakes and first and self.frames else b""
