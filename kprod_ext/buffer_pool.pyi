from collections.abc import Callable
from typing import final

@final
class PooledBuffer:
    """Memory for one batch: a writable, one-dimensional buffer of bytes.

    Made by ``BufferPool.allocate`` only. Taking a view of it (``memoryview(buffer)``) raises
    BufferError once it was given back. A buffer that is dropped without being given back returns
    its bytes to the pool when it dies. Thread-safe, except that the bytes themselves are the
    caller's to guard.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...
    @property
    def capacity(self) -> int:
        """Size in bytes; also what the pool counts as used for it."""

    @property
    def chunk_bytes(self) -> int:
        """Bytes the pool counts besides, for memory that a batch in it has grown into."""

    @property
    def lent(self) -> int:
        """Views of it that are out."""

@final
class BufferPool:
    """A bounded amount of batch memory. Thread-safe.

    ``total`` is the bound in bytes; buffers of exactly ``poolable_size`` bytes are kept for reuse.
    Memory is handed to waiting threads strictly in order of arrival, so a large request is not
    starved by small ones (``org.apache.kafka.clients.producer.internals.BufferPool``). Raises
    ValueError when ``total`` is not positive or ``poolable_size`` is negative.
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
        """Bytes neither in use nor reserved for a waiting thread."""

    @property
    def waiting(self) -> int:
        """Threads queued for memory."""

    @property
    def waited(self) -> float:
        """Seconds that threads were queued, all together; those that still are do not count."""

    @property
    def closed(self) -> bool: ...
    def allocate(
        self, size: int, timeout: float, on_wait: Callable[[], object] | None = None
    ) -> PooledBuffer:
        """Take ``size`` bytes, waiting up to ``timeout`` seconds for them (0 or less: do not wait).

        ``on_wait`` is called, with no lock held, once this thread is among those that wait.
        The content is undefined. Raises ValueError when ``size`` is not in 1..total or ``timeout``
        is NaN, TimeoutError when the memory did not become free in time, RuntimeError when the
        pool is closed or gets closed meanwhile, MemoryError when the system refuses. An exception,
        KeyboardInterrupt included, leaves the accounting as if the call had not been made.
        """

    def deallocate(self, buffer: PooledBuffer) -> None:
        """Return a buffer's bytes to the accounting, and its memory unless a view of it is out.

        Memory with a view out is never reused: it lives until its last view dies. Raises
        ValueError for a buffer of another pool, or one given back before.
        """

    def close(self) -> None:
        """Refuse allocations from now on, also those that wait. Buffers may still come back.

        Idempotent.
        """
