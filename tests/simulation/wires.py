"""The network between client and brokers: latency, faults and an observer."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.events import EventQueue, Trace
from tests.simulation.model.wire import PartitionResult
from tests.simulation.setup import Setup

if TYPE_CHECKING:
    from tests.simulation.transport import SimTransport


class Answer(NamedTuple):
    """The content of a correct response, to save decoding it."""

    results: Sequence[PartitionResult]
    throttle_ms: int
    correlation_id: int


EMPTY_ANSWER = Answer((), 0, -1)


class Watcher:
    """Observes the client's requests and the responses that reach it."""

    def dialled(self, transport: SimTransport) -> None:
        """The client opens a connection."""

    def sent(self, transport: SimTransport, frame: bytes) -> None:
        """The first byte of ``frame`` has left."""

    def changed_on_the_way(self, transport: SimTransport) -> None:
        """The bytes of a request changed after its first byte had left."""
        raise AssertionError(f"bytes changed while they were sent on {transport}")

    def answered(self, transport: SimTransport, answer: Answer) -> None:
        """A whole response is in the client's socket."""

    def stray(self, transport: SimTransport) -> None:
        """The last bytes in the socket answer no request: the client reads no further."""

    def unread(self, transport: SimTransport, answers: int) -> None:
        """A reset removed the last ``answers`` answers from the client's socket."""

    def ended(self, transport: SimTransport) -> None:
        """The client has closed the connection."""


class PoorNetwork:
    """Breaks connections after ``mean_bytes`` on average, carries ``rate`` bytes a second."""

    def __init__(self, events: EventQueue, rng: random.Random, mean_bytes: int, rate: int) -> None:
        self._events = events
        self._rng = rng
        self._mean_bytes = mean_bytes
        self._rate = rate
        self._free_at = 0.0  # when all bytes are carried, without skips

    def breaks_after(self, nbytes: int) -> int | None:
        """How many of the next bytes of a connection pass until it ends, None for all."""
        if not self._mean_bytes:
            return None
        # Every byte is equally likely to be the last: the process has no memory.
        passing = int(self._rng.expovariate(1 / self._mean_bytes))
        return passing if passing < nbytes else None

    def carry(self, nbytes: int) -> float:
        """Seconds until these bytes have been carried, after all earlier ones."""
        if not self._rate:
            return 0.0
        now = self._events.awake
        self._free_at = max(self._free_at, now) + nbytes / self._rate
        return self._free_at - now

    def ends_gracefully(self) -> bool:
        """Whether the connection ends after the broker's answers, not with a reset."""
        return self._rng.random() < 0.5


class Wires:
    def __init__(self, setup: Setup, events: EventQueue, trace: Trace, seed: int) -> None:
        self.events = events
        self.trace = trace
        self.watcher = Watcher()
        self.window = setup.window
        self.slow = 1.0  # factor on every latency
        self.mutations = 0
        self.poor = PoorNetwork(events, random.Random(seed ^ 5), setup.mean_bytes, setup.rate)
        self._rng = random.Random(seed ^ 2)
        self._latency = setup.latency
        self._lost_on_close = setup.lost_on_close

    def latency(self) -> float:
        return self._latency * self.slow * (0.5 + self._rng.random())

    def mutated(self, frame: bytes, share: float) -> bytes:
        if self._rng.random() >= share:
            return frame
        self.mutations += 1
        return mutated(self._rng, frame[4:])

    def loses_bytes_in_flight(self) -> bool:
        return self._lost_on_close > 0 and self._rng.random() < self._lost_on_close


def mutated(rng: random.Random, message: bytes) -> bytes:
    """The frame of a corrupted message; its size may be wrong as well."""
    data = bytearray(message)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data)) if data else 0
        end = min(len(data), at + rng.choice((1, 1, 2, 4, 8)))
        kind = rng.randrange(8)
        if kind <= 2 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            data[at:end] = rng.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * (end - at)
        elif kind == 4:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 30)))
        elif kind == 5:
            data[at:at] = data[at : at + rng.randrange(60)] * rng.choice((1, 2, 50))
        elif kind == 6:
            del data[at:end]
        else:
            del data[at:]
    size = len(data)
    if not rng.randrange(12):
        size = rng.choice((0, -1, size - 1, size + 1, size + 40, 2**31 - 1, 17 * 1024 * 1024))
    return struct.pack(">i", size) + bytes(data)
