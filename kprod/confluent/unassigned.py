"""Records without a partition: they wait in order until their topic is known, and no caller does"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple

from kprod.clock import SystemClock
from kprod.confluent.errors import raise_unless_unassigned
from kprod.errors import BufferFullError, KprodError, KprodTimeoutError
from kprod.intake.arguments import check_partition, check_timestamp
from kprod.producer import KafkaProducer
from kprod.types import ProducerRecord

monotonic = SystemClock.monotonic

PAUSE = 0.01
"""Seconds between two attempts to queue a record that found no memory."""


class Unassigned(NamedTuple):
    """The arguments of a ``produce`` that waits for its topic; ``began`` in seconds.

    Interceptors run in its ``context``, which holds the current span of a trace.
    """

    topic: str
    value: Any
    key: Any
    headers: Any
    partition: int | None
    timestamp_ms: int | None
    on_delivery: Callable[..., object] | None
    began: float
    context: Context

    def as_given(self) -> ProducerRecord:
        """The record itself."""
        headers = tuple(self.headers or ())
        where = self.partition, self.timestamp_ms
        return ProducerRecord(self.topic, self.value, self.key, headers, *where)


def check(record: Unassigned) -> None:
    """What ``send`` would refuse once the topic is known. Raises TypeError and KafkaException."""
    try:
        check_partition(record.partition)
        check_timestamp(record.timestamp_ms)
    except KprodError as error:
        raise_unless_unassigned(error)
    for field, data in (("value", record.value), ("key", record.key)):
        if not isinstance(data, bytes | bytearray | memoryview | None):
            raise TypeError(f"{field}: expected str, bytes or None, got {type(data).__name__}")


class UnassignedRecords:
    """Queues by topic, each with a thread that ends when its queue is empty. Thread-safe.

    Later records of a topic that is in ``queues`` must wait behind those of that queue.
    ``assign`` queues a record with the producer, ``fail`` reports its end.
    """

    def __init__(
        self,
        native: KafkaProducer,
        assign: Callable[[Unassigned], None],
        fail: Callable[[Unassigned, KprodError], None],
        timeout: float,
    ) -> None:
        self._native = native
        self._assign = assign
        self._fail = fail
        self._timeout = timeout
        self._lock = threading.Lock()  # guards the queues
        self.queues: dict[str, deque[Unassigned]] = {}

    def add(self, record: Unassigned) -> None:
        """Let a record wait until its topic is known, at most the producer's message timeout."""
        with self._lock:
            queue = self.queues.get(record.topic)
            if queue is not None:
                queue.append(record)
                return
            self.queues[record.topic] = deque((record,))
        name = f"kprod-topic-{record.topic}"
        threading.Thread(target=self._see_to, args=(record.topic,), name=name, daemon=True).start()

    def await_none(self, seconds: float) -> None:
        """Return when no record waits for its topic, or after ``seconds``."""
        pause, deadline = threading.Event(), monotonic() + seconds
        while self.queues and monotonic() < deadline:
            pause.wait(PAUSE)

    def purge(self, error: KprodError) -> None:
        """Fail every record that waits."""
        with self._lock:
            waiting = [record for queue in self.queues.values() for record in queue]
            for queue in self.queues.values():
                queue.clear()
        for record in waiting:
            self._fail(record, error)

    def _see_to(self, topic: str) -> None:
        while (record := self._first(topic)) is not None:
            assigning = False
            try:
                self._await_topic(record)
                assigning = self._taken(topic, record)
                if assigning:
                    self._queue(record)
            except KprodError as error:
                if assigning:
                    self._fail(record, error)
                elif self._taken(topic, record):  # the native producer has never seen it
                    self._native.refused(record.as_given(), error)
                    self._fail(record, error)

    def _left(self, record: Unassigned) -> float:
        return max(0.0, record.began + self._timeout - monotonic())

    def _await_topic(self, record: Unassigned) -> None:
        metadata = self._native.metadata
        left = self._left(record)
        metadata.await_topic(record.topic, left, metadata.wake, record.partition)

    def _queue(self, record: Unassigned) -> None:
        """With the producer, as soon as it has room."""
        pause = threading.Event()
        while True:
            try:
                record.context.run(self._assign, record)
            except BufferFullError:
                if not self._left(record):
                    raise
                pause.wait(PAUSE)
            except KprodTimeoutError:  # the topic was forgotten meanwhile
                self._await_topic(record)
            else:
                return

    def _first(self, topic: str) -> Unassigned | None:
        """The oldest record of the topic; without one None, and the queue is gone."""
        with self._lock:
            queue = self.queues[topic]
            if queue:
                return queue[0]
            del self.queues[topic]
            return None

    def _taken(self, topic: str, record: Unassigned) -> bool:
        """Take ``record`` from its queue; False when it was purged meanwhile."""
        with self._lock:
            queue = self.queues[topic]
            if queue and queue[0] is record:
                queue.popleft()
                return True
            return False
