"""Where records wait for the sender: per-partition queues of batches in bounded memory.

The design is that of Kafka's ``RecordAccumulator``. The map of queues is read without a lock. Each
partition has its own lock, and no lock is held while a caller waits for memory. ``close`` finds
every batch.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import BatchCompression, CompressionRatios, Compressor, decompress
from kprod.buffer.delivery import BatchDelivery, Wait
from kprod.buffer.split import split
from kprod.clock import Clock
from kprod.errors import BufferFullError, KprodError, ProducerClosedError
from kprod.lock import Lock
from kprod.quantities import in_seconds
from kprod.types import BytesLike, Header, TopicPartition, owned
from kprod_ext.batch import ProducerBatch, batch_size_upper_bound
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.partition_queue import AppendContext, AppendResult, PartitionQueue
from kprod_ext.record import RecordClock


def _nothing(*_: object) -> None:
    """Default for callbacks that are not given."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings that all queues of a topic share. They are read once, when a queue is created.

    ``linger`` is in seconds. Batches share a request only with batches of equal ``acks``. ``codec``
    is one of ``CODEC_IDS``, and ``compress`` is the function that compresses with it.
    """

    linger: float = 0.0
    acks: int = -1
    codec: int = 0
    compress: Compressor | None = None


class CopyOnWriteMap:
    """The queues by partition, read without a lock.

    Kafka's class copies the map for each new key. Here, looking up or adding one key is atomic in a
    dict, with and without a GIL: a reader finds every entry that was added before, and the map is
    copied only to shrink it, which is rare. Entries are added and removed, but not changed.
    Thread-safe.
    """

    __slots__ = ("_entries", "_most", "_writing")

    def __init__(self) -> None:
        self._writing = Lock()  # guards changing _entries, and walking over them
        self._entries: dict[TopicPartition, PartitionQueue] = {}
        self._most = 0  # the largest number of entries since _entries was made

    def get(self, key: TopicPartition) -> PartitionQueue | None:
        """The entry, or None."""
        return self._entries.get(key)

    def get_or_create(
        self, key: TopicPartition, make: Callable[[], PartitionQueue]
    ) -> PartitionQueue:
        """The entry; if there is none, add the result of ``make``.

        ``make`` runs under the lock, at most once per key.
        """
        found = self._entries.get(key)
        if found is None:
            with self._writing:
                found = self._entries.get(key)
                if found is None:
                    found = self._entries[key] = make()
                    self._most = max(self._most, len(self._entries))
        return found

    def discard(self, key: TopicPartition, entry: PartitionQueue) -> None:
        """Remove the entry, unless the key has another entry by now. Readers may still use it."""
        with self._writing:
            if self._entries.get(key) is entry:
                del self._entries[key]
            if len(self._entries) < self._most // 4:
                self._shrink()

    def _shrink(self) -> None:
        """Copy the dict to free the memory of removed entries. The caller holds ``_writing``."""
        # A reader may still have the former dict. It lacks later entries, but get_or_create looks
        # for them in this one.
        self._entries = dict(self._entries)
        self._most = len(self._entries)

    def values(self) -> list[PartitionQueue]:
        """The entries at this moment."""
        with self._writing:
            return list(self._entries.values())


class RecordAccumulator:
    """The queues of all partitions.

    Any thread may append. ``expedited`` and the methods after it are for the sender thread only.

    ``incomplete`` contains the batches without a result. Any thread may iterate over a copy of it,
    because each operation of a set is atomic, with and without a GIL. ``changed`` contains the
    queues that the sender must check: a batch is about to be added to them, was filled, or has a
    caller that waits for it. A queue is added to ``changed`` before its batch is added. In the
    other order, an exception between the two steps would hide the batch from the sender. If the
    sender checks the queue too early, it waits for the queue's lock (with a GIL, for the GIL),
    which the adding thread holds.

    ``flushes`` has an object for each flush that has not ended. While it has any, no batch lingers.

    A batch begins with ``batch_size`` bytes of memory, and is full once it has used them. It
    accepts more records until the sender takes it (KIP-782), up to ``batch_max_size`` bytes, or up
    to a lower limit of its queue.

    The functions may be called by any thread: ``settings`` returns the options of a topic, ``wake``
    makes the sender check, ``wake_within`` makes it check within that many seconds, and ``wait`` is
    how futures wait. ``callbacks`` runs the application's callbacks. ``record_clock`` stamps
    records; if it is None, the time of ``clock`` is used. ``exhausted`` is called for each record
    that found no memory in time. ``refusal`` returns why no record may be queued now; without it,
    any record may be queued until ``close``.
    """

    def __init__(  # noqa: PLR0913
        self,
        pool: BufferPool,
        *,
        clock: Clock,
        batch_size: int,
        batch_max_size: int = 0,
        settings: Callable[[str], QueueSettings],
        wake: Callable[[], None],
        wake_within: Callable[[float], None] = _nothing,
        wait: Wait | None = None,
        callbacks: Callbacks | None = None,
        record_clock: RecordClock | None = None,
        exhausted: Callable[[], None] = _nothing,
        refusal: Callable[[], KprodError | None] | None = None,
    ) -> None:
        self.pool = pool
        self.record_clock = record_clock or RecordClock(clock.wall_ms)
        self.incomplete: set[ProducerBatch] = set()
        # Appending and taking from the left are each atomic, with and without a GIL.
        self.changed: deque[PartitionQueue] = deque()
        self._settings = settings
        self._wake, self._clock, self._exhausted = wake, clock, exhausted
        self.callbacks = callbacks or Callbacks()
        self._ratios = CompressionRatios()
        self.batch_size, self.batch_max_size = batch_size, max(batch_size, batch_max_size)
        self._queues = CopyOnWriteMap()
        self._batch_compression = BatchCompression(wake)
        self._ended_by: KprodError | None = None  # appends raise it once the sender has ended
        self.flushes: set[object] = set()
        self._starved = False  # since then a caller that does not wait has found no memory
        self._context = AppendContext(
            pool,
            batch_size=batch_size,
            batch_max_size=self.batch_max_size,
            clock=self.record_clock,
            now=clock.monotonic,
            batch_type=ProducerBatch,
            delivery_type=BatchDelivery,
            callbacks=self.callbacks,
            ratios=self._ratios,
            incomplete=self.incomplete,
            on_change=self.changed.append,
            wake=wake,
            wake_within=wake_within,
            wait=wait,
            compression=self._batch_compression,
        )
        self._refusal = self._context.refusal = refusal

    # Any thread -----------------------------------------------------------------------------------

    def append(
        self,
        tp: TopicPartition,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
        timeout: float,
    ) -> AppendResult:
        """Write a record into the partition's open batch or a new one. No timestamp means now.

        Raises BufferFullError if no memory is free within ``timeout`` seconds, and
        ProducerClosedError after ``close``. Nothing is queued then.
        """
        memory: PooledBuffer | None = None
        while True:
            queue = self.partition_queue(tp)
            result = queue.append(timestamp_ms, key, value, headers, memory)
            if result is not None:
                return result
            try:
                self._let_in()
            except KprodError:
                memory = None  # back to the pool now: the traceback keeps this frame
                raise
            if memory is None and not queue.retired:
                # A buffer that grows meanwhile would not fit into the memory that is waited for.
                key, value = owned(key), owned(value)
                memory = self._memory(batch_size_upper_bound(key, value, headers), timeout)

    def append_to_open(
        self,
        tp: TopicPartition,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> AppendResult | None:
        """Like ``append``, but only into an open batch that is not full and has room.

        Otherwise it returns None, and nothing is queued. Does not wait.
        """
        self._let_in()
        return self.partition_queue(tp).append_to_open(timestamp_ms, key, value, headers)

    def _memory(self, size: int, timeout: float) -> PooledBuffer:
        """Wait at most ``timeout`` seconds for memory for a batch of at least ``size`` bytes."""
        size = max(self.batch_size, size)
        try:
            # The wake-up: the sender may sleep while batches linger; now it sends them at once.
            return self.pool.allocate(size, timeout, self._wake)
        except TimeoutError:
            raise self._no_room(size, timeout) from None
        except RuntimeError:
            self._raise_end()
            raise ProducerClosedError(
                "the producer was closed while send() waited for memory"
            ) from None

    def _no_room(self, size: int, timeout: float) -> BufferFullError:
        self._exhausted()
        if timeout <= 0:  # it may come again, as asyncio producers do: none lingers then
            self._starved = True
            self._wake()
        return BufferFullError(
            f"no room for {size} bytes within {in_seconds(timeout)}: buffer_memory of"
            f" {self.pool.total} bytes is exhausted ({self.pool.available} available); the"
            " brokers take records more slowly than send() is called"
        )

    def ensure_room(self, nbytes: int) -> None:
        """Raise BufferFullError unless ``nbytes`` of memory are free. Does not reserve them."""
        if self.pool.available < nbytes:
            raise self._no_room(nbytes, 0.0)

    def partition_queue(self, tp: TopicPartition) -> PartitionQueue:
        """The queue of a partition, created on first use."""
        queue = self._queues.get(tp)
        if queue is not None and queue.retired:  # the sender is about to remove it from the map
            self._queues.discard(tp, queue)
            queue = None
        if queue is None:
            queue = self._queues.get_or_create(tp, lambda: self._new_queue(tp))
        return queue

    def _new_queue(self, tp: TopicPartition) -> PartitionQueue:
        return PartitionQueue(self._context, tp, self._settings(tp.topic))

    def _let_in(self) -> None:
        refused = self._refused()
        if refused is not None:
            try:
                raise refused
            finally:
                del refused  # else it would refer to itself, through the traceback and this frame

    def _raise_end(self) -> None:
        if self._ended_by is not None:
            raise copy.copy(self._ended_by)

    def _refused(self) -> KprodError | None:  # why nothing may be appended
        if self._ended_by is not None:
            return copy.copy(self._ended_by)
        if self._context.closed:
            return ProducerClosedError("the producer is closed; nothing was queued")
        return None if self._refusal is None else self._refusal()

    def close(self, error: KprodError | None = None) -> None:
        """Raise ``error`` for every append from now on; queued batches may be sent immediately."""
        self._ended_by = self._ended_by or error
        self._context.closed = True
        self.close_open_batches()
        self.pool.close()

    def close_open_batches(self) -> None:
        """Close the open batches, so that the next append to each queue asks ``refusal`` again."""
        self._context.closings += 1  # first: a caller that was let in before asks again
        for queue in self._queues.values():
            queue.close_open_batch()

    # The sender's thread ------------------------------------------------------------------------

    def expedited(self) -> bool:
        """Whether batches must be sent now, without lingering."""
        starved, self._starved = self._starved, False
        return starved or self._context.closed or len(self.flushes) > 0 or self.pool.waiting > 0

    def compress(self, batch: ProducerBatch, queue: PartitionQueue) -> bool:
        """End appends to ``batch``, the head of ``queue``, and compress it.

        Returns False if a caller is compressing it. The batch then stays queued, and the caller
        wakes the sender when it is done.
        """
        batch.taken_by_sender = True  # first: from here on no caller compresses it
        if not self._batch_compression.take(batch):
            return False
        queue.close_head()
        self._batch_compression.compress(batch, queue.settings.compress)
        return True

    def sealed(self, batch: ProducerBatch) -> None:
        """Update the estimated compression ratio with that of a batch that has its final size."""
        self._ratios.observed(batch.tp.topic, batch.actual_compression_ratio)

    def withdrawn(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Withdraw ``batches``, which will not be sent, from compression. Returns them."""
        for batch in batches:
            batch.taken_by_sender = True
            self._batch_compression.forget(batch)
        return batches

    def forget(self, topics: Collection[str]) -> tuple[list[TopicPartition], set[str]]:
        """Retire the queues of ``topics``.

        Returns the partitions of retired queues, and the topics that have a queue still in use. The
        caller knows that no request contains batches of these topics. A caller that appends to a
        retired queue gets a new queue.
        """
        retired: list[TopicPartition] = []
        used: set[str] = set()
        queue: PartitionQueue
        for queue in self._queues.values():
            tp = queue.tp
            if tp.topic not in topics:
                continue
            if queue.retire():
                self._queues.discard(tp, queue)
                retired.append(tp)
            else:
                used.add(tp.topic)
        if retired:
            self._ratios.forget({tp.topic for tp in retired})
        return retired, used

    def refused_as_too_large(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        """A broker found ``batch`` too large: limit later batches of ``queue`` to half its size."""
        queue.batch_max_size = batch.size // 2  # else each batch would grow too large, to be cut
        if queue.settings.codec:
            self._ratios.start_over(batch.tp.topic, batch.actual_compression_ratio)

    def parts(self, batch: ProducerBatch, queue: PartitionQueue, count: int) -> list[ProducerBatch]:
        """Replace a batch that is not in flight by smaller ones, which are not queued yet."""
        parts = split(batch, queue.settings.codec, decompress, queue.expedite, count)
        self.incomplete.update(parts)
        self.incomplete.discard(batch)  # last: a flush must find either the batch or its parts
        batch.release()
        return parts
