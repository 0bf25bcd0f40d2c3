from collections.abc import Callable
from typing import final

@final
class PooledBuffer:
    """Memory for one batch: a writable, one-dimensional buffer of bytes.

    Only ``BufferPool.allocate`` makes one. After the buffer was given back, taking a view of it
    (``memoryview(buffer)``) raises BufferError. A buffer that is not given back returns its bytes
    to the pool when it is freed. Thread-safe, but the caller must guard the bytes themselves.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...
    @property
    def capacity(self) -> int:
        """Size in bytes, which the pool counts as used."""

    @property
    def chunk_bytes(self) -> int:
        """Further bytes that the pool counts as used, for memory by which the batch has grown."""

    @property
    def lent(self) -> int:
        """The number of views of the buffer that exist."""

@final
class BufferPool:
    """A bounded amount of batch memory. Thread-safe.

    ``total`` is the bound in bytes; buffers of exactly ``poolable_size`` bytes are kept for reuse.
    Memory is handed to waiting threads strictly in order of arrival, so that small requests cannot
    starve a large one (``org.apache.kafka.clients.producer.internals.BufferPool``).

    Raises ValueError if ``total`` is not positive or ``poolable_size`` is negative.
    """

    def __new__(cls, total: int, poolable_size: int) -> BufferPool: ...
    @property
    def total(self) -> int:
        """The bound, in bytes."""

    @property
    def poolable_size(self) -> int:
        """Size in bytes of the buffers that are kept for reuse."""

    @property
    def available(self) -> int:
        """Bytes that are neither in use nor reserved for a waiting thread."""

    @property
    def waiting(self) -> int:
        """The number of threads that wait for memory."""

    @property
    def waited(self) -> float:
        """Total seconds that threads have waited, without those that still wait."""

    @property
    def closed(self) -> bool: ...
    def allocate(
        self, size: int, timeout: float, on_wait: Callable[[], object] | None = None
    ) -> PooledBuffer:
        """Take ``size`` bytes, waiting up to ``timeout`` seconds for them (0 or less: do not wait).

        ``on_wait`` is called, with no lock held, once this thread is queued. The content of the
        memory is undefined.

        Raises ValueError if ``size`` is not in 1..total or ``timeout`` is NaN; TimeoutError if the
        memory does not become free in time; RuntimeError if the pool is or becomes closed;
        MemoryError if the system has no memory. After an exception, including KeyboardInterrupt,
        the accounting is as if the call had not been made.
        """

    def deallocate(self, buffer: PooledBuffer) -> None:
        """Count a buffer's bytes as free again, and reuse its memory unless a view of it exists.

        Memory with a view is never reused; it is freed with its last view. Raises ValueError for a
        buffer of another pool, or one that was already given back.
        """

    def close(self) -> None:
        """Refuse all allocations from now on, including those that are waiting.

        Buffers can still be given back. Idempotent.
        """
