"""The application: one thread that sends, waits when it must, and listens to what it is told."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kprod.buffer.batch import ProducerBatch
from kprod.errors import BufferFullError, KprodError, KprodTimeoutError, RecordTooLargeError
from kprod.intake.partitioner import DefaultPartitioner
from kprod.sender.loop import Sender
from kprod.types import Header, RecordMetadata, TopicPartition
from kprod_ext import batch_size_upper_bound
from tests.simulation.clock import SimClock
from tests.simulation.history import History, Sent
from tests.simulation.setup import Setup
from tests.simulation.trace import Trace

A_MOMENT = 4e-6
KEYS = (b"", b"k", b"key-2", b"another key", b"\x00\xff", b"key-5", b"key-6")


@dataclass(slots=True)
class Intent:
    """A record on the application's side of ``send``."""

    topic: str
    key: bytes | None
    partition: int | None
    size: int
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    echoes: bool = False  # its callback sends another record
    raises: bool = False  # its callback fails
    give_up_at: float = 0.0


class Flush:
    """A call of ``flush`` that has not returned yet."""

    def __init__(self, batches: Iterable[ProducerBatch], started: float) -> None:
        self.batches = list(batches)
        self.started = started

    @property
    def over(self) -> bool:
        return all(batch.delivery.done for batch in self.batches)


class App:
    """Follows ``KafkaProducer.send`` stage by stage; where that would wait, it comes back later."""

    def __init__(
        self, setup: Setup, sender: Sender, clock: SimClock, rng: random.Random, trace: Trace
    ) -> None:
        self.history = History()
        self.flushes: list[Flush] = []
        self.probing = False
        self._setup = setup
        self._sender = sender
        self._clock = clock
        self._trace = trace
        self._partitioner = DefaultPartitioner(setup.batch_size, rng)
        self._waiting: deque[Intent] = deque()
        self._next_uid = 0

    @property
    def idle(self) -> bool:
        return not self._waiting and not self.flushes

    # Sending ----------------------------------------------------------------------------------

    def send(self, intents: Iterable[Intent]) -> None:
        for intent in intents:
            intent.give_up_at = self._clock.now + self._setup.max_block_ms / 1000
            self._waiting.append(intent)
        self.go_on()

    def go_on(self) -> None:
        """Whatever the application waited for may have come: try again, in order."""
        while self._waiting:
            intent = self._waiting[0]
            try:
                self._send(intent)
            except (KprodTimeoutError, BufferFullError) as error:
                if self._clock.now < intent.give_up_at and not self.history.closed:
                    break
                self._refuse(error)
            except KprodError as error:
                self._refuse(error)
            self._waiting.popleft()
        for flush in [flush for flush in self.flushes if flush.over]:
            self.flushes.remove(flush)
            self._sender.accumulator.end_flush()
            self._trace.note("flushed")

    def _refuse(self, error: KprodError) -> None:
        self._trace.note("refused", type(error).__name__)
        self.history.refused.append((self._next_uid, error))
        self._next_uid += 1

    def _send(self, intent: Intent) -> None:
        sender = self._sender
        with self._clock.ticking():
            topic = sender.metadata.await_topic(
                intent.topic, A_MOMENT, sender.network.wake, intent.partition
            )
        if intent.partition is None:
            intent.partition = self._partitioner.choose(topic, intent.key)
        uid = self._next_uid
        value = value_of(uid, intent.size)
        if batch_size_upper_bound(intent.key, value, intent.headers) > self._setup.buffer_memory:
            raise RecordTooLargeError("larger than the buffer")
        tp = TopicPartition(intent.topic, intent.partition)
        wall_ms = self._clock.wall_ms()
        timestamp = wall_ms if intent.timestamp_ms is None else intent.timestamp_ms
        appended = sender.accumulator.append(tp, timestamp, intent.key, value, intent.headers, 0.0)
        self._next_uid += 1
        self._partitioner.appended(topic, tp.partition, appended.nbytes, appended.batch_ready)
        if appended.wake_sender:
            sender.network.wake()
        now = self._clock.now
        sent = Sent(
            uid,
            tp,
            intent.key,
            value,
            intent.headers,
            timestamp,
            appended.future,
            now,
            self.probing,
        )
        self.history.accepted.append(sent)
        appended.future.add_callback(self._stored, sent, intent)
        appended.future.add_errback(self._failed, sent, intent)

    # Being told -------------------------------------------------------------------------------

    def _stored(self, sent: Sent, intent: Intent, metadata: RecordMetadata) -> None:
        sent.stored = metadata
        self._trace.note("stored", sent.uid, sent.tp, metadata.offset)
        self.history.ends(sent, self._clock.now)
        self._react(intent)

    def _failed(self, sent: Sent, intent: Intent, error: KprodError) -> None:
        sent.error = error
        self._trace.note("failed", sent.uid, sent.tp, type(error).__name__, error.persisted.value)
        self.history.ends(sent, self._clock.now)
        self._react(intent)

    def _react(self, intent: Intent) -> None:
        if intent.echoes:
            echo = Intent(intent.topic, intent.key, None, 10)
            try:
                self._send(echo)
            except KprodError as error:
                self._refuse(error)
        if intent.raises:
            raise RuntimeError("an application's callback failed")

    # Waiting ----------------------------------------------------------------------------------

    def flush(self) -> None:
        accumulator = self._sender.accumulator
        accumulator.begin_flush()
        self.flushes.append(Flush(accumulator.incomplete.copy(), self._clock.now))
        self._sender.network.wake()

    def close(self, timeout: float, turn: Callable[[float], None]) -> None:
        """``KafkaProducer.close``: send what is queued for ``timeout`` seconds, end the rest."""
        deadline = self._clock.now + timeout
        self._sender.accumulator.close()
        while not self._sender.finished and self._clock.now < deadline:
            turn(deadline - self._clock.now)
        self._sender.abort(KprodError("the producer was closed"))
        self.go_on()
        self.history.closed = True


def value_of(uid: int, size: int) -> bytes:
    """Every record differs from every other one in all of its bytes' neighbourhoods."""
    stamp = b"%d|" % uid
    return (stamp * (size // len(stamp) + 1))[: max(size, len(stamp))]


def uid_of(value: bytes) -> int:
    return int(value[: value.index(b"|")])
