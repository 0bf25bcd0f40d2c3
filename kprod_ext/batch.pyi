from collections.abc import Callable, Sequence
from typing import Any, Final, final

from typing_extensions import Buffer, disjoint_base

from kprod_ext.buffer_pool import BufferPool, PooledBuffer

HEADER_BYTES: Final[int]
"""Number of bytes of a batch before its first record."""
RECORD_OVERHEAD: Final[int]
"""Maximum number of bytes for length, attributes, timestamp and offset of a record."""

def batch_size_upper_bound(
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]] = (),
) -> int:
    """The maximum size in bytes of an uncompressed batch with only this record.

    It holds for any timestamp and offset (``AbstractRecords.estimateSizeInBytesUpperBound``).
    Raises the errors of ``MemoryRecordsBuilder.append`` for the same arguments. Thread-safe.
    """

@final
class TailMemory:
    """The tail of a ``PartitionQueue``; freed after the queue and all batches opened in it."""

@disjoint_base
class MemoryRecordsBuilder:
    """Writes one record batch (magic 2) into a pooled buffer.

    Like ``org.apache.kafka.common.record.MemoryRecordsBuilder``. The stages are: open; closed for
    append (a record did not fit, or ``close_for_append`` was called; the header is not written
    yet); closed (``build`` returns the batch). Not thread-safe: the caller holds the lock of the
    ``PartitionQueue`` in which the batch is open.

    ``buffer`` must have at least 61 bytes; the builder never gives it back. ``write_limit`` is the
    size in bytes that the batch should not exceed, checked from the second record on. If
    ``full_size`` is less, the batch is full from that size on: the sender should send it, but until
    then it accepts records. A record that does not fit in the buffer is written to a chunk from
    ``pool``, the buffer's pool, if the pool has free memory.

    ``compression`` is the codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd), and
    ``compression_ratio`` the expected compressed size of one uncompressed byte. Records to be
    compressed may exceed the buffer as long as their estimated compressed size is below the limit:
    the buffer then grows, if ``pool`` has free memory.

    Raises ValueError for values out of range.
    """

    def __new__(
        cls,
        buffer: PooledBuffer,
        *,
        write_limit: int,
        compression: int = 0,
        compression_ratio: float = 1.0,
        pool: BufferPool | None = None,
        full_size: int | None = None,
    ) -> MemoryRecordsBuilder: ...
    def has_room_for(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> bool:
        """Whether ``try_append`` would accept the record now. Raises the errors of ``append``."""

    def try_append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> int:
        """Append a record if it fits. Otherwise close the batch for append.

        An empty batch accepts a record of any size for which its pool has free memory. Later
        records must also fit below the write limit. Returns the size of the record in bytes, or 0
        if it was not appended. Raises the errors of ``append`` for invalid arguments; the batch is
        then unchanged.
        """

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> int:
        """Append a record at the next offset, whatever the write limit; returns its bytes.

        ``timestamp_ms`` is milliseconds since the epoch. Key, value and header values are
        C-contiguous buffers, read as raw bytes, or None for null; header keys are written as UTF-8.

        Raises ValueError if the batch accepts no more records, the record does not fit in the
        buffer, the timestamp is negative, a header key has surrogates (UnicodeEncodeError) or the
        record exceeds 2 GiB. Raises TypeError and BufferError for a key or value that is not such a
        buffer, and OverflowError for a timestamp beyond 64 bits. The batch is unchanged after an
        error.
        """

    def close_for_append(self) -> None:
        """Accept no more records; the header is not written yet. Idempotent."""

    def set_producer_state(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool = False,
    ) -> None:
        """Set producer id and epoch, and the sequence number of the first record.

        All are -1 (the default) for a producer that is not idempotent. Raises RuntimeError after
        ``close``, ValueError for an invalid combination, OverflowError beyond 64, 16 and 32 bits.
        """

    def compress(self, compress: Callable[[memoryview], Buffer] | None = None) -> None:
        """Close for append, and compress the records if the codec is not 0.

        ``close`` does not compress them again, so most of its work can be done before. This may run
        in another thread than ``close``, but not at the same time. The batch's memory may be given
        back meanwhile.

        The argument ``compress`` gets the concatenated records, read-only, and must not keep the
        view. If its result is not smaller, the records stay uncompressed and ``compression``
        becomes 0. If it raises, the batch stays closed for append, and this method may be called
        again. Raises ValueError if the argument is None although it is needed. Does nothing if the
        records are already compressed.
        """

    def close(self, compress: Callable[[memoryview], Buffer] | None = None) -> None:
        """Complete the batch: ``compress`` it, then write header and CRC-32C.

        If ``compress`` raises, ``close`` may be called again. Does nothing if already closed.
        """

    def reopen_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """Rewrite the producer state and CRC of a closed batch; the records stay untouched.

        Raises RuntimeError before ``close``, and the errors of ``set_producer_state``. Raises
        BufferError while a view of the batch exists, because its bytes may be on their way to a
        broker.
        """

    def build(self) -> memoryview:
        """The whole batch, read-only; empty when it has no record.

        While the view or a slice of it exists, the memory of the buffer is not reused. For a batch
        in chunks, the result is a copy. Raises RuntimeError before ``close``, BufferError once the
        buffer was given back.
        """

    def pieces(self) -> list[memoryview]:
        """The whole batch, read-only, in order: a view for each chunk of memory; an empty list for
        a batch without records.

        While a view exists, the memory is not reused, as for ``build``. Raises RuntimeError before
        ``close``, BufferError once the buffer was given back.
        """

    @property
    def record_count(self) -> int: ...
    @property
    def is_full(self) -> bool:
        """True if the sender should send the batch: closed for append, or ``full_size`` reached."""

    @property
    def closed_for_append(self) -> bool: ...
    @property
    def is_compressed(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def compression(self) -> int:
        """The requested codec, or 0 if compression did not make the batch smaller."""

    @property
    def estimated_bytes_written(self) -> int:
        """Size of the batch in bytes: exact without compression, otherwise an estimate."""

    @property
    def uncompressed_bytes(self) -> int:
        """Bytes of the records, without the batch header, before compression."""

    @property
    def base_timestamp(self) -> int:
        """Timestamp of the first record in milliseconds; -1 when empty."""

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp in milliseconds; -1 when empty."""

    @property
    def max_record_size(self) -> int:
        """Bytes of the largest record; 0 when empty."""

    @property
    def actual_compression_ratio(self) -> float:
        """Compressed bytes per uncompressed byte, even if it is 1 or more; 1.0 before ``close``."""

@disjoint_base
class ProducerBatch(MemoryRecordsBuilder):
    """Records of one partition that are sent, acknowledged and failed together.

    One thread at a time uses it. Callers append while it is open in its ``PartitionQueue``, and a
    caller may compress it once it is closed for append. The sender thread takes it from the head of
    the queue, closes it and puts it into a request, which keeps its memory until the request has
    ended. ``now`` and all times are seconds on the monotonic clock. ``delivery`` is the outcome of
    the records.

    The garbage collector tracks a batch only after its first failure, because the traceback of the
    error may refer back to it.
    """

    tp: Any
    delivery: Any
    attempts: int
    last_attempt_at: float
    retry_at: float
    attempted_leader: Any
    producer: Any
    base_sequence: int
    """-1 until the batch has a sequence number."""
    partition: Any
    """The sender's state of the partition, once it has taken the batch from its queue."""
    drain_order: tuple[int, ...] | None
    in_flight: bool
    maybe_written: bool
    on_wire: bool
    overtaken: bool
    taken_by_sender: bool

    def __init__(
        self,
        buffer: PooledBuffer,
        tp: Any,
        delivery: Any,
        now: float,
        *,
        write_limit: int,
        compression: int = 0,
        compression_ratio: float = 1.0,
        pool: BufferPool | None = None,
        full_size: int | None = None,
    ) -> None: ...
    @property
    def created_at(self) -> float: ...
    @property
    def last_error(self) -> Any: ...
    @property
    def buffer(self) -> PooledBuffer: ...
    @property
    def records(self) -> list[memoryview] | None:
        """The ``pieces`` of a closed batch, None before ``close`` and after ``release``."""

    @property
    def size(self) -> int:
        """Bytes of the whole batch on the wire: exact once closed, estimated before."""

    @property
    def has_sequence(self) -> bool: ...
    def give_sequence(self, producer: Any, base_sequence: int) -> None:
        """Set producer id, epoch and base sequence; a closed batch gets a new header.

        Raises BufferError while a view of its bytes exists.
        """

    def attempt(self, now: float, leader: Any) -> None:
        """The batch is sent to ``leader``."""

    def failed(self, error: BaseException) -> None:
        """An attempt failed with ``error``."""

    def release(self) -> None:
        """Return the memory. The batch must not be in flight, and must have ended or been split.

        Raises ValueError the second time.
        """
