"""The application: one thread that sends, waits, and has delivery callbacks."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kprod.buffer.compiled_topics import CompiledTopics
from kprod.cluster.snapshot import TopicInfo
from kprod.errors import BufferFullError, KprodError, ProducerClosedError, RecordTooLargeError
from kprod.intake.partitioner import DefaultPartitioner
from kprod.sender.loop import Sender
from kprod.types import Header, RecordMetadata, TopicPartition
from kprod_ext import CompiledSend, batch_size_upper_bound, largest_payload
from kprod_ext.batch import ProducerBatch
from kprod_ext.futures import FutureRecordMetadata
from kprod_ext.partition_queue import AppendResult
from tests.simulation.events import SimClock, Trace
from tests.simulation.history import History, Sent
from tests.simulation.setup import Setup


class SimCompiledSend(CompiledSend):
    """``send`` returns a future, or None when the record needs the Python path."""

    def __init__(self, sender: Sender, partitioner: DefaultPartitioner, most_bytes: int) -> None:
        self._partitioner = partitioner
        self._topics = CompiledTopics(
            self._topic_appenders,
            sender.accumulator,
            sender.metadata,
            largest=largest_payload(most_bytes),
        )

    def _send(self, *_record: Any) -> None:
        """The Python path is ``App._send_slowly``."""

    def admit(self, tp: TopicPartition, partitions: int) -> None:
        self._topics.admit(tp, partitions, self._partitioner.sticky(tp.topic))

    def close(self) -> None:
        self._topics.close()


KEYS = (b"", b"k", b"key-2", b"another key", b"\x00\xff", b"key-5", b"key-6")


@dataclass(slots=True)
class Intent:
    topic: str
    key: bytes | None
    partition: int | None
    size: int
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    echoes: bool = False  # its callback sends another record
    raises: bool = False  # its callback fails


class App:
    """Does what ``KafkaProducer.send`` does. It runs between the iterations of the sender's loop.

    Where it would block, it calls ``iterate`` until the condition is met.
    """

    def __init__(
        self,
        setup: Setup,
        sender: Sender,
        clock: SimClock,
        rng: random.Random,
        trace: Trace,
        iterate: Callable[[float], bool],
        first_uid: int = 0,
    ) -> None:
        self.history = History()
        self.flushes: list[set[ProducerBatch]] = []  # calls that have not returned yet
        self.probing = False
        self.on_lookup: Callable[[str], None] = lambda topic: None
        self._setup = setup
        self._sender = sender
        self._clock = clock
        self._trace = trace
        self._iterate = iterate  # takes seconds; False when the simulation ends
        self._partitioner = DefaultPartitioner(setup.batch_size, rng)
        most_bytes = min(setup.buffer_memory, setup.max_request_size)
        self._compiled = SimCompiledSend(sender, self._partitioner, most_bytes)
        self._waiting: deque[Intent] = deque()
        self._busy = False
        self._next_uid = first_uid

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._busy or self.flushes)

    # Sending ----------------------------------------------------------------------------------

    def send(self, intents: Iterable[Intent]) -> None:
        """Queue them for the next ``go_on``."""
        self._waiting.extend(intents)
        self._sender.network.wake()

    def go_on(self) -> None:
        for flush in [each for each in self.flushes if all(one.delivery.done for one in each)]:
            self.flushes.remove(flush)
            self._sender.accumulator.flushes.discard(id(flush))
            self._trace.note("flushed")
        if self._busy:
            return
        self._busy = True
        while self._waiting:
            intent = self._waiting.popleft()
            self._try(intent, self._setup.max_block_ms / 1000)
        self._busy = False

    def _try(self, intent: Intent, patience: float) -> None:
        try:
            self.send_now(intent, patience)
        except KprodError as error:
            self._trace.note("refused", type(error).__name__)
            self.history.refused.append((self._next_uid, error))
            self._next_uid += 1

    def send_now(self, intent: Intent, patience: float) -> Sent:
        """``send``, with ``patience`` seconds as ``max_block_ms``."""
        uid, self._next_uid = self._next_uid, self._next_uid + 1
        value = value_of(uid, intent.size)
        future = self._send_fast(intent, value)
        if future is None:
            future = self._send_slowly(intent, value, self._clock.now + patience)
        sent = Sent(
            uid,
            future.topic_partition,
            intent.key,
            value,
            intent.headers,
            future.timestamp,
            future,
            self._clock.now,
            self.probing,
        )
        self.history.accepted.append(sent)
        future.add_callback(self._stored, sent, intent)
        future.add_errback(self._failed, sent, intent)
        return sent

    def _send_fast(self, intent: Intent, value: bytes) -> FutureRecordMetadata | None:
        if not self._setup.compiled_send:
            return None
        headers = intent.headers or None
        future: FutureRecordMetadata | None = self._compiled.send(
            intent.topic, value, intent.key, headers, intent.partition, intent.timestamp_ms
        )
        return future

    def _send_slowly(self, intent: Intent, value: bytes, deadline: float) -> FutureRecordMetadata:
        topic = self._topic(intent, deadline)
        if intent.partition is None:
            intent.partition = self._partitioner.choose(topic, intent.key)
        if batch_size_upper_bound(intent.key, value, intent.headers) > self._setup.buffer_memory:
            raise RecordTooLargeError("larger than the buffer")
        tp = TopicPartition(intent.topic, intent.partition)
        appended = self._append(tp, intent, value, deadline)
        if appended.wake_sender or appended.linger is not None:
            self._sender.network.wake()
        self._partitioner.appended(topic, tp.partition, appended.nbytes, appended.batch_ready)
        self._compiled.admit(tp, len(topic))
        future: FutureRecordMetadata = appended.future
        return future

    def _topic(self, intent: Intent, deadline: float) -> TopicInfo:
        metadata, network = self._sender.metadata, self._sender.network

        def known() -> bool:
            topic = metadata.snapshot.topic(intent.topic)
            return topic is not None and (intent.partition or 0) < len(topic)

        def wake() -> None:
            network.wake()
            if not self.wait(known, deadline) and self._clock.now < deadline:
                raise ProducerClosedError("closed while a topic was looked up")

        self.on_lookup(intent.topic)
        left = deadline - self._clock.now
        return metadata.await_topic(intent.topic, left, wake, intent.partition)

    def _append(
        self, tp: TopicPartition, intent: Intent, value: bytes, deadline: float
    ) -> AppendResult:
        while True:
            try:
                return self._sender.accumulator.append(
                    tp, intent.timestamp_ms, intent.key, value, intent.headers, 0.0
                )
            except BufferFullError:
                before = self._sender.accumulator.pool.available
                if not self.wait(
                    lambda: self._sender.accumulator.pool.available != before,  # noqa: B023
                    deadline,
                ):
                    raise

    def wait(self, over: Callable[[], bool], deadline: float) -> bool:
        """Run the sender until ``over()``; False when time runs out first."""
        while not over():
            left = deadline - self._clock.now
            if left <= 0 or not self._iterate(left):
                return False
        return True

    # Callbacks --------------------------------------------------------------------------------

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
            # In the sender's thread, which cannot wait for itself.
            self._try(Intent(intent.topic, intent.key, None, 10), 0.0)
        if intent.raises:
            raise RuntimeError("an application's callback failed")

    # Waiting ----------------------------------------------------------------------------------

    def flush(self) -> None:
        accumulator = self._sender.accumulator
        flush = accumulator.incomplete.copy()
        accumulator.flushes.add(id(flush))
        self.flushes.append(flush)
        self._sender.network.wake()

    def close(self, timeout: float) -> None:
        """``KafkaProducer.close``: send what is queued for ``timeout`` seconds, end the rest."""
        deadline = self._clock.now + timeout
        self._compiled.close()
        self._sender.accumulator.close()
        self._sender.metadata.close()
        self.wait(lambda: self._sender.finished, deadline)
        self._sender.abort(KprodError("the producer was closed"))
        self.go_on()
        self.history.closed = True


def value_of(uid: int, size: int) -> bytes:
    """The uid, repeated: no two records share a few adjacent bytes."""
    stamp = b"%d|" % uid
    return (stamp * (size // len(stamp) + 1))[: max(size, len(stamp))]


def uid_of(value: bytes) -> int:
    return int(value[: value.index(b"|")])
