"""The window of bytes in flight grows with answers, and is halved with a lost connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kprod.records.record_batch import RecordBatch
from kprod.sender.broker import Window
from kprod.transport.memory import ServerEnd
from kprod.types import TopicPartition
from kprod.wire.versions import ApiKey
from tests.support.fake_clock import FakeClock
from tests.support.scripted_cluster import ScriptedCluster, cut
from tests.support.sender_rig import SenderRig
from tests.support.virtual_backend import VirtualBackend

LEAST, MOST, SLOW = 100, 6400, 7.5
QUICK = 0.001


class WindowRig:
    """A window, and outcomes of its requests."""

    def __init__(self, least: int = LEAST, most: int = MOST) -> None:
        self.window = Window(least, most, SLOW)

    def answer(self, nbytes: int, *, seconds: float = QUICK) -> int:
        """Answer a request; the size of the window then."""
        self.window.in_flight += nbytes
        self.window.answered(nbytes, seconds)
        return self.window.size

    def lose(self, *requests: int, sent_at: float = 99.0, now: float = 100.0) -> int:
        """Lose the connection with these requests; the size of the window then."""
        for nbytes in requests:
            self.window.in_flight += nbytes
        for nbytes in requests:
            self.window.failed(nbytes, sent_at, now, lost=True)
        return self.window.size


def test_the_window_starts_at_one_batch_and_doubles_with_every_answered_window() -> None:
    rig = WindowRig()
    assert rig.window.size == LEAST
    assert [rig.answer(size) for size in (100, 200, 400, 800)] == [200, 400, 800, 1600]


def test_a_lost_connection_halves_the_window_which_recovers_quickly_to_half() -> None:
    rig = WindowRig()
    rig.answer(3100)
    assert rig.lose(500, 300) == 400
    assert [rig.answer(rig.window.size) for _ in range(2)] == [800, 1600]
    assert rig.answer(1600) == 1700, "beyond half of 3200 it grows by one batch per window"
    assert rig.answer(900) == 1752, "and for half a window by half of that"


def test_requests_lost_with_one_connection_shrink_the_window_once() -> None:
    rig = WindowRig()
    rig.answer(3100)
    assert rig.lose(*[400] * 8) == 1600
    assert rig.lose(400, sent_at=100.0, now=100.0) == 1600, "sent before the window shrank"
    assert rig.lose(400, sent_at=101.0, now=102.0) == 200


def test_requests_that_failed_for_other_reasons_do_not_shrink_the_window() -> None:
    rig = WindowRig()
    rig.answer(3100)
    rig.window.in_flight += 500
    rig.window.failed(500, 99.0, 100.0, lost=False)
    assert (rig.window.size, rig.window.in_flight, rig.window.room()) == (3200, 0, MOST)


def test_a_lost_connection_limits_requests_until_the_window_is_largest_again() -> None:
    rig = WindowRig()
    rig.answer(3100)
    rig.window.in_flight = 500
    assert rig.window.room() == MOST, "nothing was lost"
    rig.lose(300)
    assert (rig.window.size, rig.window.room()) == (400, 0), "500 bytes are still in flight"
    rig.window.in_flight = 0
    assert rig.window.room() == 400
    while rig.window.size < MOST:
        assert rig.window.room() == rig.window.size
        rig.answer(rig.window.size)
    rig.window.in_flight = MOST
    assert rig.window.room() == MOST


def test_the_window_grows_to_at_most_twice_the_bytes_in_flight() -> None:
    """A network that carries 100 bytes at a time may not carry a batch of 6,400."""
    rig = WindowRig()
    assert [rig.answer(100) for _ in range(100)] == [200] * 100


def test_a_slow_answer_does_not_grow_the_window() -> None:
    """At that rate, a larger window would soon exceed the request timeout."""
    rig = WindowRig()
    assert rig.answer(100, seconds=SLOW) == 200
    assert rig.answer(200, seconds=SLOW + 0.1) == 200, "nor shrinks it"
    assert rig.answer(200) == 400


TP = TopicPartition("t", 0)
BATCH = 300
LARGEST = 3000
VALUE = b"%050d"


class LimitedEnd(ServerEnd):
    """Resets the connection when the client has sent more than ``carries()`` bytes."""

    def __init__(self, inner: ServerEnd, carries: Callable[[], int | None]) -> None:
        self._inner = inner
        self._carries = carries
        self._taken = 0

    def receive(self, data: bytes) -> bytes:
        most = self._carries()
        if most is not None:
            self._taken += len(data)
            if self._taken > most:
                raise ConnectionResetError("Connection reset by peer")
        return self._inner.receive(data)


class LossyRig:
    """A sender whose connections end after ``carries`` bytes, once set; sockets take 400."""

    def __init__(self, **options: Any) -> None:
        self.cluster = ScriptedCluster({"t": [1]})
        self.broker = self.cluster.add(1)
        self.carries: int | None = None
        accept = self.broker.accept
        address = (self.broker.host, self.broker.port)
        self.cluster.listeners[address] = lambda: LimitedEnd(accept(), lambda: self.carries)
        clock = FakeClock()
        backend = VirtualBackend(clock, self.cluster.listeners, send_chunk=400)
        self.rig = SenderRig(
            self.cluster,
            clock=clock,
            transport=lambda **_: backend,
            **{"batch_size": BATCH, "batch_max_size": LARGEST, "linger_ms": 0, **options},
        )
        self.rig.backend = backend
        self.rig.know("t")

    def send(self, first: int, count: int) -> Callable[[], bool]:
        futures = [self.rig.queue(VALUE % number) for number in range(first, first + count)]
        return lambda: all(future.is_done for future in futures)

    def grow(self) -> int:
        """Send records until the window is largest; their number."""
        sent = 0
        for count in (4, 8, 16, 32, 40, 40):
            assert self.rig.run(self.send(sent, count))
            sent += count
        return sent

    @property
    def log(self) -> list[RecordBatch]:
        return self.cluster.log[TP]


def check(log: list[RecordBatch], records: int) -> None:
    """Each record once, in order, with consecutive sequence numbers of one epoch."""
    sequence = 0
    values: list[bytes | None] = []
    for batch in log:
        assert (batch.producer_epoch, batch.base_sequence) == (0, sequence)
        sequence += batch.record_count
        values += [record.value for record in batch.records()]
    assert values == [VALUE % number for number in range(records)]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_unread_batches_are_split_when_the_network_carries_less(compression: str | None) -> None:
    lossy = LossyRig(compression_type=compression)
    sent = lossy.grow()
    batches = len(lossy.log)
    lossy.carries = 1000
    assert lossy.rig.run(lossy.send(sent, 40))
    check(lossy.log, sent + 40)
    if compression is None:  # compressed, it fits without a split
        assert max(len(batch.data) for batch in lossy.log[batches:]) < 1000
        assert lossy.rig.metrics.batches_split >= 1


def test_without_idempotence_batches_that_may_have_been_read_are_split_too() -> None:
    """A duplicate is possible in any case."""
    lossy = LossyRig(enable_idempotence=False)
    sent = lossy.grow()
    lossy.broker.next(ApiKey.PRODUCE, cut)
    assert lossy.rig.run(lossy.send(sent, 40))
    assert max(batch.record_count for batch in lossy.log[-4:]) <= 20
    assert lossy.cluster.values("t") == [VALUE % number for number in range(sent + 40)]
