"""Where records wait for the sender: per-partition queues of batches in bounded memory.

After Kafka's ``RecordAccumulator``: the map of queues is read without a lock, each partition has
one lock, memory is waited for outside every lock, and closing misses no batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from kprod.backoff import ExponentialBackoff
from kprod.buffer.batch import ProducerBatch
from kprod.buffer.batch_compression import BatchCompression
from kprod.buffer.batch_maker import BatchMaker, SpareBatch
from kprod.buffer.batch_queue import Appended, BatchQueue
from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import CompressionRatios, decompress
from kprod.buffer.delivery import BatchDelivery, Wait
from kprod.buffer.drain_gate import DrainGate
from kprod.buffer.growing_map import GrowingMap
from kprod.buffer.incomplete import IncompleteBatches
from kprod.buffer.queue_settings import QueueSettings
from kprod.buffer.ready_tracker import Ready, ReadyTracker
from kprod.buffer.split import split
from kprod.buffer.unused_queues import retire_unused
from kprod.clock import Clock
from kprod.cluster.snapshot import ClusterSnapshot, Leadership
from kprod.errors import ConnectionLost, KprodError, ProducerClosedError
from kprod.latch import Latch
from kprod.types import BytesLike, Header, TopicPartition
from kprod_ext.batch import batch_size_upper_bound
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.record_clock import RecordClock

log = logging.getLogger(__name__)

Taken: TypeAlias = list[tuple[ProducerBatch, Leadership]]


class RecordAccumulator:
    """Appends come from any thread; ``ready``, ``drain`` and what follows from the sender's only.

    A batch is full with ``batch_size`` bytes, and has at most ``batch_max_size``. Any thread may
    call ``settings``, what holds for a topic, ``wake``, the sender looks, and ``wait``, how futures
    wait. ``callbacks`` runs theirs; ``record_clock`` stamps records, None: one that asks ``clock``.
    """

    def __init__(
        self,
        pool: BufferPool,
        *,
        clock: Clock,
        batch_size: int,
        batch_max_size: int = 0,
        settings: Callable[[str], QueueSettings],
        retry_backoff: ExponentialBackoff,
        wake: Callable[[], None],
        wait: Wait | None = None,
        callbacks: Callbacks | None = None,
        record_clock: RecordClock | None = None,
    ) -> None:
        self.pool = pool
        self.record_clock = record_clock or RecordClock(clock.wall_ms)
        self.incomplete = IncompleteBatches()
        self._settings, self._retry_backoff = settings, retry_backoff
        self._wake, self._clock = wake, clock
        self.callbacks = callbacks or Callbacks()
        self._ratios = CompressionRatios()
        self.batch_size, self.batch_max_size = sizes = batch_size, max(batch_size, batch_max_size)
        self._maker = BatchMaker(pool, clock, *sizes, self._ratios, self.callbacks, wake)
        self._queues: GrowingMap = GrowingMap()
        self._ready_tracker = ReadyTracker()
        self.let_grow = self._ready_tracker.let_grow
        self._batch_compression = BatchCompression(wake)
        self._flushes = 0
        self._flush_lock = threading.Lock()  # guards _flushes
        self._hurry = False  # when the sender looked last
        self._hurried = self._hurry_up  # one bound method for all queues, not one for each
        self._waited = None if wait is None else partial(self._wait_for, wait)
        self._closed = False
        self.refusal: Callable[[], KprodError | None] | None = None  # why nobody may append

    # Any thread -----------------------------------------------------------------------------------

    def append(
        self,
        tp: TopicPartition,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
        timeout: float,
    ) -> Appended:
        """Write a record into the partition's open batch or a new one; without a time, with now's.

        Waits ``timeout`` seconds for memory, then raises BufferFullError; ProducerClosedError after
        ``close``. Nothing is queued then.
        """
        queue = self._queues.get(tp) or self._new_queue(tp)
        self.let_in()
        appended = queue.append_at_once(timestamp_ms, key, value, headers)
        if appended is not None:
            if appended.wake_sender:
                self._after_append(queue, filled=True)
            return appended
        buffer = self._maker.memory(batch_size_upper_bound(key, value, headers), timeout)
        batch: ProducerBatch | None = None
        queue.lock.acquire()  # as in BatchQueue.head
        try:
            # Again, under the lock: shut() may have swept this queue since, and nobody would settle
            # a batch that is added after that. Or another thread may have opened one meanwhile.
            self.let_in()
            if not (retired := queue.retired):
                appended = queue.try_append(timestamp_ms, key, value, headers)
            if appended is None and not retired:
                batch = self._maker.batch(queue, buffer)
                self.incomplete.add(batch)
                self._ready_tracker.note(queue)
                appended = queue.push(batch, timestamp_ms, key, value, headers)
        except BaseException:
            # A signal handler raises anywhere, also right after the batch was queued: then it
            # stays, with its memory. Nobody can take it away before we let go of the lock.
            if batch is None or not queue.holds(batch):
                self._take_back(batch, buffer)
            raise
        finally:
            queue.lock.release()
        if batch is None:
            self.pool.deallocate(buffer)
        else:
            self._after_append(queue, filled=False)
        return appended or self.append(tp, timestamp_ms, key, value, headers, timeout)

    def _after_append(self, queue: BatchQueue, *, filled: bool) -> None:
        # The record is queued: an error would say that it is not. Without what fails here its batch
        # leaves when its linger is over, and the sender compresses it.
        try:
            if filled:
                self._ready_tracker.note(queue)
            elif queue.batch_compression is not None:
                queue.batch_compression.help()
        except MemoryError:
            pass

    def _take_back(self, batch: ProducerBatch | None, buffer: PooledBuffer) -> None:
        """Undo the beginning of a batch that did not come into its queue."""
        if batch is not None:
            self.incomplete.discard(batch)
            batch.delivery.fail(KprodError("interrupted"))  # for a flush that has seen it
        self.pool.deallocate(buffer)

    def spare_batches(self, tp: TopicPartition, count: int) -> list[SpareBatch]:
        """See ``BatchMaker.spares``. Who has filled one must ``publish`` it."""
        queue = self._queues.get(tp) or self._new_queue(tp)
        # Who fills one batch after the other can help to compress them in between.
        return self._maker.spares(queue, count) if queue.batch_compression is None else []

    def publish(self, tp: TopicPartition, spare: SpareBatch) -> BatchDelivery:
        """Queue a filled batch; its delivery, which has failed after ``close``. All or nothing."""
        queue = self._queues.get(tp) or self._new_queue(tp)
        batch = self._maker.filled(queue, spare)
        queue.lock.acquire()  # as in BatchQueue.head
        try:
            refused, retired = self._refused(), queue.retired
            if refused is None and not retired:
                self.incomplete.add(batch)
                self._ready_tracker.note(queue)
                queue.push_filled(batch)
        except BaseException:
            if not queue.holds(batch):
                self.incomplete.discard(batch)
                batch.delivery.fail(KprodError("interrupted"))  # a flush may wait
                raise
        finally:
            queue.lock.release()
        if refused is not None:
            batch.delivery.fail(refused)
            batch.release()
        elif retired:
            return self.publish(tp, spare)
        return batch.delivery

    def _new_queue(self, tp: TopicPartition) -> BatchQueue:
        """The queue of a partition that is used for the first time, as far as this thread knows."""
        queue = BatchQueue(tp, self._settings(tp.topic), self.record_clock)
        queue.hurry = partial(self._hurried, queue)
        queue.batch_compression = self._batch_compression if queue.settings.codec else None
        queue.wait = None if self._waited is None else partial(self._waited, queue)
        made: BatchQueue = self._queues.get_or_create(tp, lambda: queue)
        return made

    def _hurry_up(self, queue: BatchQueue) -> None:
        """Somebody waits for a batch of ``queue``."""
        self._ready_tracker.note(queue)
        self._wake()

    def _wait_for(
        self, wait: Wait, queue: BatchQueue, told: Latch, timeout: float | None, first: bool
    ) -> bool:
        """A thread waits for a batch of ``queue``, as the first of all or not."""
        if first:
            self._ready_tracker.note(queue)
        return wait(told, timeout, first)

    def let_in(self) -> None:  # see ``append``: raises why nothing may be queued
        if refused := self._refused():
            raise refused

    def _refused(self) -> KprodError | None:  # why nothing may be appended
        if self._closed:
            return ProducerClosedError("the producer is closed; nothing was queued")
        return None if self.refusal is None else self.refusal()

    def queue(self, tp: TopicPartition) -> BatchQueue:
        """Where records of a partition may be appended directly, after ``let_in``."""
        queue: BatchQueue = self._queues.get(tp) or self._new_queue(tp)
        return queue

    def filled(self, tp: TopicPartition) -> None:
        """A record that was appended directly has filled the open batch of ``tp``."""
        if (queue := self._queues.get(tp)) is not None:
            self._ready_tracker.note(queue)

    def begin_flush(self) -> None:
        """Make every batch sendable, however young, until ``end_flush``."""
        self._flush_lock.acquire()  # not by ``with``: compiled, it cannot bear lack of memory
        self._flushes += 1
        self._flush_lock.release()

    def end_flush(self) -> None:
        """One flush has ended."""
        self._flush_lock.acquire()  # as in ``begin_flush``
        self._flushes -= 1
        self._flush_lock.release()

    def close(self) -> None:
        """Refuse every append from now on; what is queued stays sendable at once."""
        self._closed = True
        self.shut()
        self.pool.close()

    def shut(self) -> None:
        """Close the open batches: who was let in has queued its record, others ask ``refusal``."""
        for queue in self._queues.values():
            queue.shut()  # an append that was let in held the lock: its batch is in the queue

    # The sender's thread ------------------------------------------------------------------------

    def ready(self, snapshot: ClusterSnapshot, now: float, measured: Container[str] = ()) -> Ready:
        """Which nodes there is something to send to, and when to look again.

        Of the topics in ``measured`` also how many batches wait for each partition with a leader.
        """
        self._hurry = self._closed or self._flushes > 0 or self.pool.waiting > 0
        ready_tracker = self._ready_tracker
        ready_tracker.look(snapshot, now)
        return Ready(
            ready_tracker.node_queues(self._hurry),
            ready_tracker.next_look() - now,
            ready_tracker.leaderless(),
            ready_tracker.depths.of(measured),
        )

    def drain(self, node_id: int, acks: int, gate: DrainGate, max_bytes: int) -> Taken:
        """Take at most one batch per partition for one request: sealed, in sequence.

        Together they have up to ``max_bytes``, or there is one only. Of those that were ready when
        ``ready`` looked; what was left longest comes first. When this raises nothing was taken.
        """
        taken: Taken = []
        try:
            self._drain(taken, node_id, acks, gate, max_bytes)
        except BaseException:
            # Memory has run out, say. What is in no queue and in no request would have no outcome.
            for batch, _ in taken:
                if self._queue_of(batch).oldest is not batch:
                    self.put_back(batch)
            raise
        return taken

    def _drain(
        self, taken: Taken, node_id: int, acks: int, gate: DrainGate, max_bytes: int
    ) -> None:
        room = max_bytes
        for place in self._ready_tracker.at(node_id, acks, self._hurry):
            for queue in place:
                batch, leader = queue.oldest, queue.leader
                if batch is None or leader is None:  # not so, but it must not stay there
                    self._ready_tracker.note_anew(queue)
                    continue
                if not gate.admits(batch, leader):
                    self._ready_tracker.shut(queue)
                    continue
                if taken and batch.size > room:
                    return
                if self._make_ready(batch, queue, gate, room if taken else self.pool.total):
                    room -= batch.size
                    taken.append((batch, leader))
                    queue.take_head()
                self._ready_tracker.note_anew(queue)

    def missing(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Those that are in no queue. Every queue is looked at anew: it may have been forgotten."""
        for queue in self._queues.values():
            self._ready_tracker.note_anew(queue)
        return [batch for batch in batches if not self._queue_of(batch).has(batch)]

    def reopened(self, partitions: Iterable[TopicPartition]) -> None:
        """The gate may admit what it refused of these partitions."""
        for tp in partitions:
            if (queue := self._queues.get(tp)) is not None:
                self._ready_tracker.reopened(queue)

    def _make_ready(
        self, batch: ProducerBatch, queue: BatchQueue, gate: DrainGate, room: int
    ) -> bool:
        """Give the head of ``queue`` its bytes and its sequence; False: a caller is compressing it,
        it takes more than ``room``, or it rests, as that failed. It is still queued then.
        """
        try:
            if ready := queue.close_head():
                queue.pack_head(batch)
                ready = batch.size <= room  # else it must get no sequence: it would wait with one
            if ready:
                gate.assign(batch)
                if batch.records is None:
                    batch.seal(None)
                    if queue.batch_compression is not None:
                        ratio = batch.builder.actual_compression_ratio
                        self._ratios.observed(batch.tp.topic, ratio)
        except Exception:
            ready = False
            log.exception("a batch of %s could not be made ready; it is tried again", batch.tp)
            batch.attempts += 1
            batch.retry_at = self._clock.monotonic() + self._retry_backoff.delay(batch.attempts)
            self._wake()  # to look when that will be
        return ready

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a batch for another attempt, before everything that was never sent."""
        batch.retry_at = batch.last_attempt_at
        if not isinstance(batch.last_error, ConnectionLost):  # reconnecting has a back-off already
            batch.retry_at += self._retry_backoff.delay(batch.attempts)
        queue = self._queue_of(batch)
        queue.put_back(batch)
        self._ready_tracker.note_anew(queue)

    def take_expired(self, created_before: float) -> list[ProducerBatch]:
        """Remove the queued batches that were created before a time."""
        return self._ready_tracker.take_older(created_before)

    def take_all(self) -> list[ProducerBatch]:
        """Remove every queued batch."""
        return self._ready_tracker.take_all()

    def remove(self, batch: ProducerBatch) -> None:
        """Take out one batch, if it is queued."""
        queue = self._queue_of(batch)
        queue.remove(batch)
        self._ready_tracker.note_anew(queue)

    def forget(self, topics: set[str]) -> tuple[list[TopicPartition], set[str]]:
        """Retire the queues of ``topics``; their partitions, and the topics with a queue in use.

        The caller knows that no request has batches of these topics.
        """
        return retire_unused(self._queues, self._ready_tracker, self._ratios, topics)

    def next_expiry(self) -> float:
        """When the oldest queued batch was created; infinite when none waits."""
        return self._ready_tracker.oldest()

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Replace a batch that a broker finds too large by two smaller ones."""
        queue = self._queue_of(batch)
        queue.batch_max_size = batch.size // 2  # else it would go on growing, to be cut each time
        if queue.settings.codec:
            self._ratios.start_over(batch.tp.topic, batch.builder.actual_compression_ratio)
        return self.cut(batch, 2)

    def cut(self, batch: ProducerBatch, count: int) -> list[ProducerBatch]:
        """Replace a batch that is off the wire by smaller ones, at its place in the queue."""
        queue = self._queue_of(batch)
        parts = split(batch, queue.settings.codec, decompress, queue.hurry, count)
        for part in parts:
            self.incomplete.add(part)
            self.put_back(part)
        self.incomplete.discard(batch)  # after: a flush must find the one or the others
        batch.release()
        return parts

    def _queue_of(self, batch: ProducerBatch) -> BatchQueue:
        queue: BatchQueue | None = self._queues.get(batch.tp)
        if queue is None:
            raise AssertionError(f"{batch!r} does not come from this accumulator")
        return queue
