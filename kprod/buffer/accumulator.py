"""Where records wait for the sender: per-partition queues of batches in bounded memory.

Kafka's ``RecordAccumulator``, with its guarantees: the map of queues is read without a lock, each
partition has one lock, memory is waited for outside every lock, and closing misses no batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from kprod.backoff import ExponentialBackoff
from kprod.buffer.attention import Attention
from kprod.buffer.batch import ProducerBatch
from kprod.buffer.batch_maker import BatchMaker, SpareBatch
from kprod.buffer.batch_queue import Appended, BatchQueue
from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import CompressionRatios, decompress
from kprod.buffer.delivery import BatchDelivery, Wait
from kprod.buffer.growing_map import GrowingMap
from kprod.buffer.incomplete import IncompleteBatches
from kprod.buffer.packing import Packing
from kprod.buffer.queue_settings import QueueSettings
from kprod.buffer.split import split
from kprod.clock import Clock
from kprod.cluster.snapshot import ClusterSnapshot, Leadership
from kprod.errors import ConnectionLost, KprodError, ProducerClosedError
from kprod.latch import Latch
from kprod.types import BytesLike, Header, TopicPartition
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.open_batch import OpenBatch
from kprod_ext.records_builder import batch_size_upper_bound

log = logging.getLogger(__name__)


class DrainGate(Protocol):
    """Who decides, for order's sake, whether a partition's oldest batch may leave now."""

    def admits(self, batch: ProducerBatch, leader: Leadership) -> bool:
        """True when ``batch`` may be sent to ``leader``."""
        ...

    def assign(self, batch: ProducerBatch) -> None:
        """Give a batch that is about to leave its sequence, if it has none."""
        ...


class Ready:
    """What could be sent.

    ``nodes``: the nodes it could be sent to, each with the ``acks`` of the requests it could be in.
    ``next_check``: seconds until there may be more, if nothing happens. ``leaderless``: topics with
    records for a partition without a leader. ``queued``: how many batches wait, by topic and
    partition, of the topics that are measured.
    """

    __slots__ = ("leaderless", "next_check", "nodes", "queued")

    def __init__(
        self,
        nodes: dict[int, list[int]],
        next_check: float,
        leaderless: set[str],
        queued: Mapping[str, Mapping[int, int]],
    ) -> None:
        self.nodes = nodes
        self.next_check = next_check
        self.leaderless = leaderless
        self.queued = queued


class RecordAccumulator:
    """Appends come from any thread; ``ready``, ``drain`` and what follows from the sender's only.

    ``settings`` tells what holds for a topic; ``wake`` makes the sender look; ``wait`` is how the
    futures wait (see ``BatchDelivery``). Any thread may call them. ``callbacks`` runs those of the
    futures.
    """

    def __init__(
        self,
        pool: BufferPool,
        *,
        clock: Clock,
        batch_size: int,
        settings: Callable[[str], QueueSettings],
        retry_backoff: ExponentialBackoff,
        wake: Callable[[], None],
        wait: Wait | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        self.pool = pool
        self.incomplete = IncompleteBatches()
        self._settings = settings
        self._retry_backoff = retry_backoff
        self._wake = wake
        self.callbacks = callbacks or Callbacks()
        self._clock = clock
        self._ratios = CompressionRatios()
        self._maker = BatchMaker(pool, clock, batch_size, self._ratios, self.callbacks, wake)
        self._queues: GrowingMap = GrowingMap()
        self._attention = Attention()
        self._packing = Packing(wake)
        self._flushes = 0
        self._flush_lock = threading.Lock()  # guards _flushes
        self._hurry = False  # when the sender looked last
        self._hurried = self._hurry_up  # one bound method for all queues, not one for each
        self._waited = None if wait is None else partial(self._wait_for, wait)
        self._closed = False

    # Any thread -----------------------------------------------------------------------------------

    def append(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
        timeout: float,
    ) -> Appended:
        """Write a record into the partition's open batch, or into a new one.

        Waits at most ``timeout`` seconds for memory. Raises BufferFullError when there is none,
        ProducerClosedError after ``close``; nothing is queued then.
        """
        queue = self._queues.get(tp) or self._new_queue(tp)
        self._refuse_when_closed()
        appended = queue.append_at_once(timestamp_ms, key, value, headers)
        if appended is not None:
            if appended.wake_sender:
                self._attention.note(queue)
            return appended
        buffer = self._maker.memory(batch_size_upper_bound(key, value, headers), timeout)
        batch: ProducerBatch | None = None
        queue.lock.acquire()  # as in BatchQueue.head
        try:
            # Closed is looked at again, under the lock: close() may have swept this queue since,
            # and a batch added after the sweep would never be settled.
            self._refuse_when_closed()
            # Another thread may have opened a batch while we waited for memory.
            appended = queue.try_append(timestamp_ms, key, value, headers)
            if appended is None:
                batch = self._maker.batch(queue, buffer)
                self.incomplete.add(batch)
                self._attention.note(queue)
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
        elif queue.packing is not None:
            queue.packing.help()
        return appended

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
        return self._maker.spares(queue, count) if queue.packing is None else []

    def publish(self, tp: TopicPartition, spare: SpareBatch) -> BatchDelivery:
        """Queue a filled batch; its delivery, which has failed after ``close``. All or nothing."""
        queue = self._queues.get(tp) or self._new_queue(tp)
        batch = self._maker.filled(queue, spare)
        queue.lock.acquire()  # as in BatchQueue.head
        try:
            if not (closed := self._closed):
                self.incomplete.add(batch)
                self._attention.note(queue)
                queue.push_filled(batch)
        except BaseException:
            if not queue.holds(batch):
                self.incomplete.discard(batch)
                batch.delivery.fail(KprodError("interrupted"))  # a flush may wait
                raise
        finally:
            queue.lock.release()
        if closed:
            batch.delivery.fail(ProducerClosedError("the producer was closed meanwhile"))
            batch.release()
        return batch.delivery

    def _new_queue(self, tp: TopicPartition) -> BatchQueue:
        """The queue of a partition that is used for the first time, as far as this thread knows."""
        queue = BatchQueue(tp, self._settings(tp.topic))
        queue.hurry = partial(self._hurried, queue)
        queue.packing = self._packing if queue.settings.codec else None
        if self._waited is not None:
            queue.wait = partial(self._waited, queue)
        made: BatchQueue = self._queues.get_or_create(tp, lambda: queue)
        return made

    def _hurry_up(self, queue: BatchQueue) -> None:
        """Somebody waits for a batch of ``queue``."""
        self._attention.note(queue)
        self._wake()

    def _wait_for(
        self, wait: Wait, queue: BatchQueue, told: Latch, timeout: float | None, first: bool
    ) -> bool:
        """A thread waits for a batch of ``queue``, as the first of all or not."""
        if first:
            self._attention.note(queue)
        return wait(told, timeout, first)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed; nothing was queued")

    def open_batch(self, tp: TopicPartition) -> OpenBatch:
        """Where records of a partition that was used before may be appended directly."""
        return (self._queues.get(tp) or self._new_queue(tp)).open_batch

    def filled(self, tp: TopicPartition) -> None:
        """A record that was appended directly has filled the open batch of ``tp``."""
        if (queue := self._queues.get(tp)) is not None:
            self._attention.note(queue)

    def begin_flush(self) -> None:
        """Make every batch sendable, however young, until ``end_flush``."""
        with self._flush_lock:
            self._flushes += 1

    def end_flush(self) -> None:
        """One flush has ended."""
        with self._flush_lock:
            self._flushes -= 1

    def close(self) -> None:
        """Refuse every append from now on; what is queued stays sendable at once."""
        self._closed = True
        for queue in self._queues.values():
            with queue.lock:
                queue.shut()  # an append that saw "open" held the lock: its batch is in the queue
        self.pool.close()

    # The sender's thread ------------------------------------------------------------------------

    def ready(self, snapshot: ClusterSnapshot, now: float, measured: Container[str] = ()) -> Ready:
        """Which nodes there is something to send to, and when to look again.

        Of the topics in ``measured`` also how many batches wait for each partition with a leader.
        """
        attention = self._attention
        self._hurry = self._closed or self._flushes > 0 or self.pool.waiting > 0
        attention.look(snapshot, now)
        return Ready(
            attention.posts(self._hurry),
            attention.next_look() - now,
            attention.leaderless(),
            attention.depths.of(measured),
        )

    def drain(
        self, node_id: int, acks: int, gate: DrainGate, max_bytes: int
    ) -> list[tuple[ProducerBatch, Leadership]]:
        """Take at most one batch per partition for one request: sealed, in sequence.

        Together they have up to ``max_bytes``, or there is one only. Of those that were ready when
        ``ready`` looked; what was left longest comes first. When this raises nothing was taken.
        """
        taken: list[tuple[ProducerBatch, Leadership]] = []
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
        self,
        taken: list[tuple[ProducerBatch, Leadership]],
        node_id: int,
        acks: int,
        gate: DrainGate,
        max_bytes: int,
    ) -> None:
        room = max_bytes
        for place in self._attention.at(node_id, acks, self._hurry):
            for queue in place:
                batch, leader = queue.oldest, queue.leader
                if batch is None or leader is None:  # not so, but it must not stay there
                    self._attention.note_anew(queue)
                    continue
                if not gate.admits(batch, leader):
                    self._attention.shut(queue)
                    continue
                if taken and batch.size > room:
                    return
                if self._make_ready(batch, queue, gate, room if taken else self.pool.total):
                    room -= batch.size
                    taken.append((batch, leader))
                    queue.take_head()
                self._attention.note_anew(queue)

    def missing(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Those that are in no queue. Every queue is looked at anew: it may have been forgotten."""
        for queue in self._queues.values():
            self._attention.note_anew(queue)
        return [batch for batch in batches if not self._queue_of(batch).has(batch)]

    def reopened(self, partitions: Iterable[TopicPartition]) -> None:
        """The gate may admit what it refused of these partitions."""
        for tp in partitions:
            if (queue := self._queues.get(tp)) is not None:
                self._attention.reopened(queue)

    def _make_ready(
        self, batch: ProducerBatch, queue: BatchQueue, gate: DrainGate, room: int
    ) -> bool:
        """Give the head of ``queue`` its bytes and its sequence; False: a caller is compressing it,
        it takes more than ``room``, or it rests, as that failed. It is still queued then.
        """
        try:
            if ready := queue.close_head():
                queue.pack_head(batch)
                # Before it has a sequence: with one it would wait for all that is on the wire.
                ready = batch.size <= room
            if ready:
                gate.assign(batch)
                if batch.records is None:
                    batch.seal(None)
                    if queue.packing is not None:
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
        self._attention.note_anew(queue)

    def take_expired(self, created_before: float) -> list[ProducerBatch]:
        """Remove the queued batches that were created before a time."""
        return self._attention.take_older(created_before)

    def take_all(self) -> list[ProducerBatch]:
        """Remove every queued batch."""
        return self._attention.take_all()

    def remove(self, batch: ProducerBatch) -> None:
        """Take out one batch, if it is queued."""
        queue = self._queue_of(batch)
        queue.remove(batch)
        self._attention.note_anew(queue)

    def next_expiry(self) -> float:
        """When the oldest queued batch was created; infinite when none waits."""
        return self._attention.oldest()

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Replace a batch that is off the wire by two smaller ones, at its place in the queue."""
        queue = self._queue_of(batch)
        codec = queue.settings.codec
        parts = split(batch, codec, decompress, queue.hurry)
        if codec:
            self._ratios.start_over(batch.tp.topic, batch.builder.actual_compression_ratio)
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
