"""Records of unknown topics. They wait here, in order, so that ``produce`` need not wait."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple

from kprod.clock import SystemClock
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.metadata_errors import Search
from kprod.cluster.snapshot import TopicInfo
from kprod.confluent.errors import raise_unless_unassigned
from kprod.confluent.native import NativeProducer
from kprod.errors import AuthenticationError, KprodError, KprodTimeoutError
from kprod.intake.arguments import check_partition, check_timestamp
from kprod.intake.attempts import Attempts
from kprod.intake.serializers import NO_SERIALIZERS
from kprod.latch import Latch, NextLatch
from kprod.lock import Lock
from kprod.process import await_at_exit
from kprod.producer import KafkaProducer
from kprod.quantities import counted
from kprod.types import ProducerRecord, owned
from kprod_ext import generation
from kprod_ext.futures import FutureRecordMetadata

log = logging.getLogger(__name__)

monotonic = SystemClock.monotonic

PAUSE = 0.01
"""Seconds between two attempts to queue a record for which there is no memory."""


class Unassigned(NamedTuple):
    """The arguments of ``produce`` for a record that waits for its topic. ``began`` is in seconds.

    Interceptors run in ``context``, which holds the current trace span.
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

    @property
    def nbytes(self) -> int:
        """The bytes of its key and value, which are already copied."""
        return len(self.key or b"") + len(self.value or b"")

    def as_given(self) -> ProducerRecord:
        """The record as it was given."""
        headers = tuple(self.headers or ())
        where = self.partition, self.timestamp_ms
        return ProducerRecord(self.topic, self.value, self.key, headers, *where)


def checked(record: Unassigned, native: NativeProducer) -> Unassigned:
    """Copy the record's buffers, which the application may change while the record waits.

    Raises TypeError and KafkaException now if ``native`` would refuse the record later.
    """
    for field, data in (("value", record.value), ("key", record.key)):
        if not isinstance(data, bytes | bytearray | memoryview | None):
            raise TypeError(f"{field}: expected str, bytes or None, got {type(data).__name__}")
    try:
        check_partition(record.partition)
        check_timestamp(record.timestamp_ms)
        key, value, _ = NO_SERIALIZERS.apply_to(record.topic, record.key, record.value, ())
        native.check_size(record.as_given())
    except KprodError as error:
        raise_unless_unassigned(error)
        raise
    return record._replace(key=owned(key), value=owned(value))


class _TopicQueue:
    """The records that wait for one topic, and the topic search of the first record."""

    __slots__ = ("attempt", "records", "search", "searched_for")

    def __init__(self) -> None:
        self.records: deque[Unassigned] = deque()
        self.attempt: tuple[Unassigned, Attempts] | None = None  # of a record that needs memory
        self.search: Search | None = None
        self.searched_for: Unassigned | None = None

    def search_of(self, record: Unassigned, metadata: Metadata) -> Search:
        """The search for ``record``'s topic, which begins on the first call."""
        if self.search is None or self.searched_for is not record:
            self.search = metadata.search(record.topic, record.partition)
            self.searched_for = record
        return self.search


class UnassignedRecords:
    """Queues by topic, with one thread for all queues while records wait. Thread-safe.

    The thread checks every topic whenever the cluster's metadata changes, so that one request asks
    for all unknown topics. Records of a topic that is in ``queues`` must be added to that queue.
    ``attempts`` returns the attempts to queue a record in the producer, now that its topic is
    known. ``queued`` is called with its future, and ``fail`` with the error of a record that was
    not queued.
    """

    def __init__(
        self,
        native: KafkaProducer,
        attempts: Callable[[Unassigned, TopicInfo], Attempts],
        queued: Callable[[Unassigned, FutureRecordMetadata], None],
        fail: Callable[[Unassigned, KprodError], None],
        timeout: float,
    ) -> None:
        self._native = native
        self._attempts = attempts
        self._queued = queued
        self._fail = fail
        self._timeout = timeout
        self.queues: dict[str, _TopicQueue] = {}
        self._begin()
        await_at_exit(self, native.config.close_timeout_ms_at_exit / 1000)

    def _begin(self) -> None:
        """Create all state anew: after a fork, a thread of the parent may hold the old lock."""
        self._process = generation()
        self._lock = Lock()  # guards the queues, their bytes and the thread
        self.queues.clear()
        self._nbytes = 0  # of the records in the queues
        self._thread: threading.Thread | None = None
        self._news = NextLatch()  # opens when metadata changes, or a topic is added
        self._metadata: Metadata = self._native.metadata
        self._metadata.subscribe(MetadataListener(changed=self._news.open))

    def _begin_in_child(self) -> None:
        """Start again after a fork, without the waiting records, which belong to the parent."""
        if generation() != self._process or self._native.metadata is not self._metadata:
            self._begin()

    def add(self, record: Unassigned) -> None:
        """Add a record, which waits for its topic at most for the producer's message timeout.

        Raises BufferFullError if the producer's memory has no room for all waiting records.
        """
        self._begin_in_child()
        with self._lock:
            self._native.ensure_room(self._nbytes + record.nbytes)
            self._ensure_thread()
            queue = self.queues.get(record.topic)
            if queue is None:
                queue = self.queues[record.topic] = _TopicQueue()
                self._news.open()
            queue.records.append(record)
            self._nbytes += record.nbytes

    def _ensure_thread(self) -> None:
        """Start the thread. Requires the lock, so that the thread sees the record being added."""
        if self._thread is None or not self._thread.is_alive():
            # The first batch imports it, otherwise in the thread: a fork during the import would
            # leave the child with a partly initialised module.
            import crc32c  # noqa: F401

            name = f"kprod-topics-{self._native.config.client_id}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def await_none(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until no record waits; return whether this was reached."""
        self._begin_in_child()
        pause, deadline = Latch(), monotonic() + seconds
        while self.queues and monotonic() < deadline:
            pause.wait(PAUSE)
        return not self.queues

    def await_at_exit(self, seconds: float) -> None:
        """As ``await_none``, but also log how many records are lost."""
        if generation() == self._process and not self.await_none(seconds):
            lost = sum(len(queue.records) for queue in list(self.queues.values()))
            log.warning(
                "lost at the interpreter's exit: %s of %s with an unknown topic; call flush()"
                " before the exit",
                counted(lost, "record"),
                self._native.config.client_id,
            )

    def purge(self, error: KprodError) -> None:
        """Fail all waiting records."""
        self._begin_in_child()
        with self._lock:
            waiting = [record for queue in self.queues.values() for record in queue.records]
            begun = [queue.attempt for queue in self.queues.values() if queue.attempt is not None]
            for queue in self.queues.values():
                queue.records.clear()
                queue.attempt = None
            self._nbytes = 0
        self._news.open()
        for _, attempts in begun:
            attempts.end(error)
        for record in waiting:
            self._fail(record, error)

    # The thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            news = self._news.following()  # first: later changes trigger another check
            topics = self._topics()
            if not topics:
                return  # the thread would keep a dropped producer alive
            asked, longest = False, self._timeout
            for topic in topics:
                asks, seconds = self._see_to(topic)
                asked, longest = asked or asks, min(longest, seconds)
            if asked:
                self._metadata.wake()
            if self.queues:
                news.wait(longest)

    def _topics(self) -> list[str]:
        """The topics that records wait for. If there are none, the thread has to end."""
        with self._lock:
            if not self.queues:
                self._thread = None
            return list(self.queues)

    def _see_to(self, topic: str) -> tuple[bool, float]:
        """Queue the records of a topic if the topic is known; fail records that have timed out.

        Returns whether the sender has to request the topic, and the seconds until the next check.
        """
        while (record := self._first(topic)) is not None:
            try:
                found, asks = self._look(record)
            except KprodError as error:
                if self._taken(record):  # the native producer has not seen it yet
                    self._native.refused(record.as_given(), error)
                    self._fail(record, error)
                continue
            if found is None:
                return asks, self._left(record)
            if self._taken(record) and not self._is_over(record, found):
                return False, PAUSE
        return False, self._timeout

    def _left(self, record: Unassigned) -> float:
        return max(0.0, record.began + self._timeout - monotonic())

    def _look(self, record: Unassigned) -> tuple[TopicInfo | None, bool]:
        """The record's topic if it is known, and whether the sender has to request it.

        Raises as ``Metadata.await_topic``. However, an AuthenticationError is raised only when the
        record times out, because credentials may be corrected meanwhile, as in librdkafka.
        """
        search = self.queues[record.topic].search_of(record, self._metadata)
        try:
            found, asks, _ = self._metadata.check(search)
        except AuthenticationError:
            if not self._left(record):
                raise
            return None, True
        if found is None and not self._left(record):
            raise self._metadata.not_found(search, self._timeout)
        return found, asks

    def _is_over(self, record: Unassigned, topic: TopicInfo) -> bool:
        """Queue a record in the producer, or fail it. Returns False if it has to wait again."""
        queue = self.queues[record.topic]
        known, queue.attempt = queue.attempt, None
        attempts = known[1] if known and known[0] is record else self._attempts(record, topic)
        try:
            future = record.context.run(attempts.send)
        except KprodError as error:
            # No memory, or the topic was forgotten meanwhile.
            if isinstance(error, KprodTimeoutError) and self._left(record):
                with self._lock:
                    queue.attempt = record, attempts
                    queue.records.appendleft(record)
                    self._nbytes += record.nbytes
                return False
            attempts.end(error)
            self._fail(record, error)
        else:
            self._queued(record, future)
        return True

    def _first(self, topic: str) -> Unassigned | None:
        """The oldest record of the topic; if there is none, remove the queue and return None."""
        with self._lock:
            records = self.queues[topic].records
            if records:
                return records[0]
            del self.queues[topic]
            return None

    def _taken(self, record: Unassigned) -> bool:
        """Take ``record`` from its queue. Returns False if the record was purged meanwhile."""
        with self._lock:
            records = self.queues[record.topic].records
            if records and records[0] is record:
                records.popleft()
                self._nbytes -= record.nbytes
                return True
            return False
