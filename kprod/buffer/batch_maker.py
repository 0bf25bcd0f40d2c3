"""What batches are made of: memory, a writer of records, and a place for their outcome."""

from __future__ import annotations

from collections.abc import Callable

from kprod.buffer.batch import ProducerBatch
from kprod.buffer.batch_queue import BatchQueue
from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import CompressionRatios
from kprod.clock import Clock, in_seconds
from kprod.errors import BufferFullError, ProducerClosedError
from kprod_ext.batch import MemoryRecordsBuilder
from kprod_ext.buffer_pool import BufferPool, PooledBuffer

SPARE_BYTES = 1024 * 1024
"""Of all batches that one call fills before it queues them, about: so many stay in the caches."""


class SpareBatch:
    """A batch that is filled before it is queued: of a topic, but of no partition yet."""

    __slots__ = ("buffer", "builder")

    def __init__(self, buffer: PooledBuffer, builder: MemoryRecordsBuilder) -> None:
        self.buffer = buffer
        self.builder = builder


class BatchMaker:
    """Makes the batches of one accumulator. Thread-safe.

    A batch begins with ``batch_size`` bytes of memory, is ready when it has filled them, and goes
    on filling until the sender takes it (KIP-782), up to ``batch_max_size`` or what its queue may
    grow to. ``wake`` makes the sender look when somebody has to wait for memory.
    """

    def __init__(
        self,
        pool: BufferPool,
        clock: Clock,
        batch_size: int,
        batch_max_size: int,
        ratios: CompressionRatios,
        callbacks: Callbacks,
        wake: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._batch_size = batch_size
        self._batch_max_size = batch_max_size
        self._ratios = ratios
        self._callbacks = callbacks
        self._wake = wake

    def memory(self, size: int, timeout: float) -> PooledBuffer:
        """Wait at most ``timeout`` seconds for memory of a batch with a record of ``size`` bytes.

        Raises BufferFullError when there is none, ProducerClosedError after ``close``.
        """
        size = max(self._batch_size, size)
        try:
            # The sender may sleep over what lingers; with somebody waiting it sends that at once.
            return self._pool.allocate(size, timeout, self._wake)
        except TimeoutError:
            raise BufferFullError(
                f"no room for {size} bytes within {in_seconds(timeout)}: buffer_memory of"
                f" {self._pool.total} bytes is exhausted ({self._pool.available} available); the"
                " brokers take records more slowly than send() is called"
            ) from None
        except RuntimeError:
            raise ProducerClosedError(
                "the producer was closed while send() waited for memory"
            ) from None

    def batch(self, queue: BatchQueue, buffer: PooledBuffer) -> ProducerBatch:
        """An empty batch for ``queue``, in that memory."""
        return self._batch(queue, buffer, self._builder(queue, buffer))

    def filled(self, queue: BatchQueue, spare: SpareBatch) -> ProducerBatch:
        """The batch that ``spare`` has become, for ``queue``."""
        return self._batch(queue, spare.buffer, spare.builder)

    def spares(self, queue: BatchQueue, count: int) -> list[SpareBatch]:
        """At most ``count`` for the topic of ``queue``, as there is memory without waiting.

        Together they take at most ``SPARE_BYTES`` and a quarter of the memory there is; who lets go
        of one gives its memory back.
        """
        most = min(count, min(SPARE_BYTES, self._pool.total // 4) // self._batch_size)
        spares: list[SpareBatch] = []
        while len(spares) < most:
            buffer: PooledBuffer | None
            try:
                buffer = self._pool.allocate(self._batch_size, 0)
            except (TimeoutError, RuntimeError):
                buffer = None  # no more memory, or closed
            if buffer is None:
                break
            spares.append(SpareBatch(buffer, self._builder(queue, buffer)))
        return spares

    def _builder(self, queue: BatchQueue, buffer: PooledBuffer) -> MemoryRecordsBuilder:
        codec = queue.settings.codec
        most = min(self._batch_max_size, queue.batch_max_size, queue.grows_to)
        return MemoryRecordsBuilder(
            buffer,
            write_limit=max(most, self._batch_size),
            full_size=self._batch_size,  # so a record that is larger fills its batch at once
            compression=codec,
            compression_ratio=self._ratios.estimate(queue.tp.topic) if codec else 1.0,
            pool=self._pool,
        )

    def _batch(
        self, queue: BatchQueue, buffer: PooledBuffer, builder: MemoryRecordsBuilder
    ) -> ProducerBatch:
        now, hurry, wait = self._clock.monotonic(), queue.hurry, queue.wait
        return ProducerBatch(
            queue.tp, self._pool, buffer, builder, now, hurry, self._callbacks, wait
        )
