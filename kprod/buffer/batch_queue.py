"""The batches of one partition, oldest first (the per-partition deque of Kafka's accumulator)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from kprod.buffer.batch import ProducerBatch
from kprod.buffer.batch_compression import BatchCompression
from kprod.buffer.delivery import Wait
from kprod.buffer.future import FutureRecordMetadata
from kprod.buffer.growing_map import GrowingMap
from kprod.buffer.queue_list import NodeQueues, QueueListMember
from kprod.buffer.queue_settings import QueueSettings
from kprod.cluster.snapshot import Leadership
from kprod.types import BytesLike, Header, TopicPartition
from kprod_ext.partition_queue import PartitionAppender
from kprod_ext.record_clock import RecordClock


class Appended:
    """What an append did.

    ``batch_ready``: the record has filled its batch, so the sticky partitioner may move on.
    ``wake_sender``: a batch has become full, so the sender has something to send.
    ``linger``: a batch was created, which the sender has to look at within so many seconds; None:
    none was.
    """

    __slots__ = ("batch_ready", "future", "linger", "nbytes", "wake_sender")

    def __init__(self) -> None:
        self.future: FutureRecordMetadata = None  # type: ignore[assignment]  # before ``tell``
        self.nbytes = 0
        self.batch_ready = False
        self.wake_sender = False
        self.linger: float | None = None

    def tell(self, future: FutureRecordMetadata, nbytes: int, full: bool) -> None:
        """The record was written, and its batch is ``full`` or not."""
        self.future = future
        self.nbytes = nbytes
        self.batch_ready = self.wake_sender = full


def _nobody() -> None:
    """Hurry nobody."""


class BatchQueue(QueueListMember):
    """Appends at the tail by any thread; takes and retries at the head by the sender's thread only.

    Records enter through ``partition_appender``, which has a lock of its own: the compiled path
    appends there without this queue's. Only the sender's thread removes batches, so the head it has
    looked at stays the head until it takes it.

    ``retired``: the partition has, or will have, another queue; nothing is pushed here any more.
    ``batch_max_size`` is less than what holds for all once a broker found a batch too large, and
    ``grows_to`` is what the leader's node allowed when the sender looked last.
    ``hurry`` and ``wait`` are those of the deliveries of its batches. ``leader``,
    ``queues_of_node``, ``found_in`` and ``look`` are for ``ReadyTracker`` to remember what it saw.
    """

    __slots__ = (
        "_batches",
        "_drained",
        "_newest",
        "acks",
        "batch_compression",
        "batch_max_size",
        "found_in",
        "grows_to",
        "hurry",
        "leader",
        "linger",
        "lock",
        "look",
        "partition_appender",
        "queues_of_node",
        "retired",
        "settings",
        "tp",
        "wait",
    )

    def __init__(
        self, tp: TopicPartition, settings: QueueSettings, clock: RecordClock | None = None
    ) -> None:
        super().__init__()
        self.tp = tp
        self.settings = settings
        self.linger = settings.linger
        self.acks = settings.acks
        self.hurry: Callable[[], None] = _nobody
        self.wait: Wait | None = None
        self.batch_compression: BatchCompression | None = None
        self.batch_max_size = 2**31 - 1
        self.grows_to = 0
        self.leader: Leadership | None = None
        self.queues_of_node: NodeQueues | None = None
        self.found_in = 0
        self.look = 0
        self.partition_appender = PartitionAppender(FutureRecordMetadata, clock)
        self.lock = threading.Lock()  # guards the two below, and which batch is open
        self._batches: deque[ProducerBatch] = deque()
        self._newest: ProducerBatch | None = None
        self._drained = 0
        self.retired = False

    # Any thread -----------------------------------------------------------------------------------

    def append_at_once(
        self,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> Appended | None:
        """As ``try_append``, for a caller that does not hold ``lock``."""
        self.lock.acquire()  # as in ``head``
        try:
            return self.try_append(timestamp_ms, key, value, headers)
        finally:
            self.lock.release()

    def append_to_open(
        self,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> Appended | None:
        """As ``append_at_once``, but None too when the open batch is full and would only grow."""
        self.lock.acquire()  # as in ``head``
        try:
            newest = self._newest
            if newest is None or newest.builder.is_full:
                return None
            return self.try_append(timestamp_ms, key, value, headers)
        finally:
            self.lock.release()

    # Any thread, holding ``lock`` -----------------------------------------------------------------

    def try_append(
        self,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> Appended | None:
        """Append to the open batch if there is one and it has room, else None."""
        newest = self._newest
        if newest is None or newest.builder.closed_for_append:  # as most callers have seen
            return None
        appended = Appended()  # first: there may be no memory for it, and the record is written
        partition_appender = self.partition_appender
        future = partition_appender.try_append(timestamp_ms, key, value, headers)
        if future is None:
            return None
        appended.tell(future, partition_appender.last_bytes, partition_appender.last_full)
        return appended

    def push(
        self,
        batch: ProducerBatch,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> Appended:
        """Write a record into a new batch and put it at the tail. The caller holds ``lock``.

        The record is written first: when that raises, the queue is as it was.
        """
        if timestamp_ms is None:
            timestamp_ms = self.partition_appender.clock.wall_ms()
        written = batch.write_first(timestamp_ms, key, value, headers)
        if written is None:
            raise AssertionError(f"a new batch of {self.tp} had no room for its first record")
        future, nbytes = written
        appended = Appended()
        appended.tell(future, nbytes, batch.builder.is_full)
        appended.linger = self.linger
        appended.wake_sender = appended.batch_ready or len(self._batches) > 0
        self._batches.append(batch)
        filled, self._newest = self._newest, batch
        try:
            self.partition_appender.open(batch.builder, batch.delivery)
            compress = self.settings.compress
            if filled is not None and self.batch_compression is not None and compress is not None:
                self.batch_compression.offer(filled, compress)
        except MemoryError:
            pass  # the record is queued: an error would say that it is not
        return appended

    def push_filled(self, batch: ProducerBatch) -> None:
        """Put a batch that has records at the tail, and open it. The caller holds ``lock``."""
        self._batches.append(batch)
        self._newest = batch
        self.partition_appender.open(batch.builder, batch.delivery)

    def shut(self) -> None:
        """Take no more records into the open batch; waits for who is about to queue one."""
        self.lock.acquire()  # as in ``put_back``
        try:
            self.partition_appender.shut()
        finally:
            self.lock.release()

    def holds(self, batch: ProducerBatch) -> bool:
        """True when ``batch`` is queued here. The caller holds ``lock``."""
        return batch in self._batches

    # The sender's thread ------------------------------------------------------------------------

    def has(self, batch: ProducerBatch) -> bool:
        """As ``holds``; waits for a caller that is about to queue it."""
        self.lock.acquire()  # as in ``put_back``
        try:
            return batch in self._batches
        finally:
            self.lock.release()

    @property
    def depth(self) -> int:
        """How many batches wait."""
        return len(self._batches)

    @property
    def oldest(self) -> ProducerBatch | None:
        """The oldest batch: without a lock, for nobody but the sender's thread removes one."""
        return self._batches[0] if self._batches else None

    def head(self) -> tuple[ProducerBatch | None, bool]:
        """The oldest batch, and whether it should leave at once."""
        self.lock.acquire()  # not by ``with``, which takes a compiled module three times as long
        try:
            if not self._batches:
                return None, False
            first = self._batches[0]
            return first, len(self._batches) > 1 or first.builder.is_full
        finally:
            self.lock.release()

    def close_head(self) -> bool:
        """From here on nobody appends to the oldest batch; it is about to be taken.

        False when a caller is compressing it: it is left as it is, and the sender will be woken.
        """
        self.lock.acquire()  # as in ``head``
        try:
            batch = self._batches[0]
            if self.batch_compression is not None and not self.batch_compression.take(batch):
                return False
            self._finish(batch)
            if batch.drain_order is None:
                self._drained += 1
                batch.drain_order = (self._drained,)
            return True
        finally:
            self.lock.release()

    def pack_head(self, batch: ProducerBatch) -> None:
        """Compress ``batch``, after ``close_head``, if it is to be: then it has its final size."""
        if self.batch_compression is not None:
            self.batch_compression.compress(batch, self.settings.compress)

    def take_head(self) -> ProducerBatch:
        """Remove the oldest batch, after ``close_head``, which waited for the pushing caller."""
        return self._batches.popleft()

    def _finish(self, batch: ProducerBatch) -> None:
        """Nobody appends to ``batch`` any more; ``lock`` is held."""
        if batch is self._newest:
            self.partition_appender.shut()
            self._newest = None
        batch.builder.close_for_append()

    def _end(self, batch: ProducerBatch) -> None:
        """``batch`` will not be sent any more; ``lock`` is held."""
        self._finish(batch)
        if self.batch_compression is not None:
            self.batch_compression.forget(batch)

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a taken batch again, in the order of first taking among others that came back."""
        self.lock.acquire()  # not by ``with``: compiled, it cannot bear that memory runs out
        try:
            place = 0
            for waiting in self._batches:
                if waiting.drain_order is None or waiting.drain_order > (batch.drain_order or ()):
                    break
                place += 1
            self._batches.insert(place, batch)
        finally:
            self.lock.release()

    def remove(self, batch: ProducerBatch) -> None:
        """Take out one batch, wherever it stands, if it is queued."""
        self.lock.acquire()  # as in ``put_back``
        try:
            if batch in self._batches:
                self._batches.remove(batch)
        finally:
            self.lock.release()

    def retire(self, queues: GrowingMap) -> bool:
        """Leave ``queues`` if there are no batches, and take none any more; else False."""
        self.lock.acquire()  # as in ``put_back``
        try:
            if not self._batches:
                queues.discard(self.tp)  # first, so that a late caller finds another one there
                self.partition_appender.shut()
                self._newest = None
                self.retired = True
            return self.retired
        finally:
            self.lock.release()

    def take_expired(self, created_before: float) -> list[ProducerBatch]:
        """Remove the batches at the head that were created before a time, oldest first."""
        gone: list[ProducerBatch] = []
        self.lock.acquire()  # as in ``put_back``
        try:
            while self._batches and self._batches[0].created_at <= created_before:
                batch = self._batches.popleft()
                self._end(batch)
                gone.append(batch)
        finally:
            self.lock.release()
        return gone

    def take_all(self) -> list[ProducerBatch]:
        """Remove every batch."""
        self.lock.acquire()  # as in ``put_back``
        try:
            gone = list(self._batches)
            self._batches.clear()
            for batch in gone:
                self._end(batch)
        finally:
            self.lock.release()
        return gone
