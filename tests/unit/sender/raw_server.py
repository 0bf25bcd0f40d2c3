"""The far end of a connection as bytes: what came is kept, what goes back is the test's choice."""

from __future__ import annotations

from kprod.transport.memory import ServerEnd
from kprod.wire.framing import FrameReader
from tests.unit.sender.exchanges import handshake_answer


class RawServer:
    """Accepts connections; ``ends`` are theirs. Answers handshakes unless ``shakes`` is False."""

    def __init__(self, *, shakes: bool = True) -> None:
        self.shakes = shakes
        self.ends: list[RawEnd] = []

    def accept(self) -> ServerEnd:
        self.ends.append(RawEnd(self.shakes))
        return self.ends[-1]


class RawEnd:
    """One accepted connection; ``frames`` are the messages that came complete, without size."""

    def __init__(self, shakes: bool) -> None:
        self.frames: list[bytes] = []
        self._shakes = shakes
        self._reader = FrameReader()

    def receive(self, data: bytes) -> bytes:
        first = not self.frames
        self.frames += [bytes(message) for message in self._reader.feed(data)]
        return handshake_answer(0) if self._shakes and first and self.frames else b""
