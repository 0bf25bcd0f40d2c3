"""The network between client and brokers: what bytes cost, and who watches them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.events import EventQueue, Trace
from tests.simulation.model.wire import PartitionResult
from tests.simulation.mutation import mutated
from tests.simulation.setup import Setup

if TYPE_CHECKING:
    from tests.simulation.transport import SimTransport


class Answer(NamedTuple):
    """What an undisturbed response says, so that nobody has to decode it again."""

    results: Sequence[PartitionResult]
    throttle_ms: int
    correlation_id: int


NOTHING_SAID = Answer((), 0, -1)


class Watcher:
    """Sees all that the client writes and every response that reaches it, and judges nothing."""

    def dialled(self, transport: SimTransport) -> None:
        """A connection is wanted."""

    def sent(self, transport: SimTransport, frame: bytes) -> None:
        """The first byte of ``frame`` has left."""

    def changed_on_the_way(self, transport: SimTransport) -> None:
        """What arrived is not what was in memory when its first byte left."""
        raise AssertionError(f"bytes changed while they were sent on {transport}")

    def answered(self, transport: SimTransport, answer: Answer) -> None:
        """A whole response lies in the client's socket."""

    def stray(self, transport: SimTransport) -> None:
        """What lies last in the client's socket answers nothing: the client ends the connection
        there, and reads nothing that comes behind it.
        """

    def unread(self, transport: SimTransport, answers: int) -> None:
        """A reset has taken the last so many answers from the client's socket."""

    def ended(self, transport: SimTransport) -> None:
        """The client has let go of the connection."""


class PoorNetwork:
    """Breaks a connection off after bytes that are drawn with a mean; carries so many in a second.

    0 is for a network without that fault.
    """

    def __init__(self, events: EventQueue, rng: random.Random, mean_bytes: int, rate: int) -> None:
        self._events = events
        self._rng = rng
        self._mean_bytes = mean_bytes
        self._rate = rate
        self._free_at = 0.0  # when it has carried what it was given; in time awake

    def breaks_after(self, nbytes: int) -> int | None:
        """How many of the next bytes of a connection pass until it ends, None for all."""
        if not self._mean_bytes:
            return None
        # It fails at any byte alike: what has passed before says nothing about what will.
        passing = int(self._rng.expovariate(1 / self._mean_bytes))
        return passing if passing < nbytes else None

    def carry(self, nbytes: int) -> float:
        """Seconds until the last of these bytes leaves the line, behind all that it was given."""
        if not self._rate:
            return 0.0
        now = self._events.awake
        self._free_at = max(self._free_at, now) + nbytes / self._rate
        return self._free_at - now

    def tells_of_the_end(self) -> bool:
        """The broken connection ends with what the broker had answered, not with a reset."""
        return self._rng.random() < 0.5


class Wires:
    """What all connections share."""

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

    def loses_what_is_under_way(self) -> bool:
        return self._lost_on_close > 0 and self._rng.random() < self._lost_on_close
