from collections.abc import Callable, Sequence
from typing import Any, Final, final

from typing_extensions import Buffer, disjoint_base

from kprod_ext.buffer_pool import BufferPool, PooledBuffer

HEADER_BYTES: Final[int]
"""Bytes of a batch before its first record."""
RECORD_OVERHEAD: Final[int]
"""Bytes that length, attributes, timestamp and offset of a record take at most."""

def batch_size_upper_bound(
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]] = (),
) -> int:
    """Bytes an uncompressed batch with this one record can take at most.

    Holds for any timestamp and offset (``AbstractRecords.estimateSizeInBytesUpperBound``). Raises
    what ``MemoryRecordsBuilder.append`` raises for the same arguments. Thread-safe.
    """

@final
class TailMemory:
    """The tail of a ``PartitionQueue``: freed with the queue and with all batches opened there."""

@disjoint_base
class MemoryRecordsBuilder:
    """Writes one record batch (magic 2) into a pooled buffer.

    After ``org.apache.kafka.common.record.MemoryRecordsBuilder``. Stages: open; closed for append
    (a record found no room, or ``close_for_append`` was called; header not written); closed
    (``build`` returns the batch).
    Not thread-safe: the caller holds the lock of the ``PartitionQueue`` that the batch is open in.

    ``buffer`` must hold at least 61 bytes; the builder never gives it back. ``write_limit`` is the
    size in bytes the batch should not exceed, checked from the second record on. From ``full_size``
    bytes on, if that is less, the batch is full: the sender should send it, and it accepts records
    until then. A record that finds no room in the buffer goes into a chunk of ``pool``, if the pool
    has memory at once.
    ``compression`` is the codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd), ``compression_ratio``
    the expected compressed size of one uncompressed byte. Records to be compressed may outgrow
    the buffer as long as their estimated compressed size is below the limit: then it grows, if
    ``pool``, the one it came from, has the memory at once. ``control``: the batch is for control
    records, and takes no others. Raises ValueError for values out of range.
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
        control: bool = False,
    ) -> MemoryRecordsBuilder: ...
    def has_room_for(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> bool:
        """Whether ``try_append`` would take the record now. Raises as ``append`` does."""

    def try_append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> int:
        """Append a record if it fits, else close for append.

        An empty batch takes a record of any size that its pool has memory for, without waiting.

        Returns the bytes the record takes, or 0 when it was not appended. The first record needs
        only memory, the next ones room below the write limit too. Raises as ``append`` does for
        bad arguments; the batch is unchanged then.
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
        Raises ValueError when the batch takes no more records, the buffer has no room, the
        timestamp is negative, a header key has surrogates (UnicodeEncodeError) or the record
        exceeds 2 GiB; TypeError and BufferError for what is not such a buffer; OverflowError for
        a timestamp beyond 64 bits. The batch is unchanged after an error.
        """

    def append_with_offset(
        self,
        offset: int,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        *,
        control: bool = False,
    ) -> int:
        """Append a record at this offset; the first one is the base offset of the batch.

        As ``append``, but that ``timestamp_ms`` may be -1 for none. Raises ValueError for an offset
        that is negative, does not follow the last one, or is more than 2**31 - 1 from the first
        one, and where ``control`` is not that of the batch. For copies of logs: a batch of a
        producer begins with 0.
        """

    def abort(self) -> None:
        """Take no more records, and never become a batch: ``close`` raises RuntimeError.

        Raises RuntimeError when closed. Idempotent.
        """

    def close_for_append(self) -> None:
        """Take no more records; the header is still to be written. Idempotent."""

    def set_producer_state(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool = False,
    ) -> None:
        """Set producer id and epoch, and the sequence number of the first record.

        All -1 (the default) for a producer that is not idempotent. Raises RuntimeError once
        closed, ValueError for a combination that cannot be, OverflowError beyond 64, 16, 32 bits.
        """

    def compress(self, compress: Callable[[memoryview], Buffer] | None = None) -> None:
        """Close for append, and compress the records if the codec is not 0: the costly part of
        ``close``, which leaves it out afterwards. Another thread may do it than the one that closes
        the batch, but no two at a time; the batch's memory may be given back meanwhile.

        ``compress`` gets the concatenated records, read-only, and must not keep the view. When its
        result is not smaller, the records stay as they are and ``compression`` becomes 0.
        If it raises, the batch stays closed for append and ``compress`` may be called again.
        Raises ValueError when it is needed and None. Does nothing when compressed already.
        """

    def close(self, compress: Callable[[memoryview], Buffer] | None = None) -> None:
        """Complete the batch: ``compress`` it, then write header and CRC-32C.

        If ``compress`` raises, ``close`` may be called again. Does nothing when closed already.
        """

    def reopen_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """Rewrite the producer state and CRC of a closed batch; the records stay untouched.

        Raises RuntimeError before ``close``, BufferError while a view of the batch is out (its
        bytes may be on their way to a broker), otherwise as ``set_producer_state``.
        """

    def build(self) -> memoryview:
        """The whole batch, read-only; empty when it has no record.

        The view lends the buffer: while it or a slice of it lives, the memory is not reused. Of a
        batch in chunks it is a copy.
        Raises RuntimeError before ``close``, BufferError once the buffer was given back.
        """

    def pieces(self) -> list[memoryview]:
        """The whole batch, read-only, in order: a view for each chunk of memory; an empty list for
        a batch without records.

        Each view lends the buffer, as that of ``build``. Raises RuntimeError before ``close``,
        BufferError once the buffer was given back.
        """

    @property
    def record_count(self) -> int: ...
    @property
    def is_full(self) -> bool:
        """True when the sender should send it: closed for append, or ``full_size`` reached."""

    @property
    def closed_for_append(self) -> bool: ...
    @property
    def is_compressed(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def compression(self) -> int:
        """The codec of the batch: the one asked for, or 0 when ``close`` found it did not pay."""

    @property
    def estimated_bytes_written(self) -> int:
        """Size of the batch in bytes: exact without compression, else by the expected ratio."""

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
        """Compressed bytes per uncompressed byte, also if 1 or more; 1.0 before ``close``."""

@disjoint_base
class ProducerBatch(MemoryRecordsBuilder):
    """Records of one partition that are sent, acknowledged and failed together.

    One thread at a time uses it. Callers append while it is open in its ``PartitionQueue``, and one
    may compress it once it is closed for append. The sender thread takes it from the head of the
    queue, closes it and puts it into a request, which keeps its memory until the request has ended.
    ``now`` and all times are seconds on the monotonic clock; ``delivery`` is the outcome of its
    records. The garbage collector tracks a batch from its first failure on, because the traceback
    of the error may refer back to it.
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
    in_line: bool
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

        Raises BufferError while its bytes are lent.
        """

    def attempt(self, now: float, leader: Any) -> None:
        """The batch is sent to ``leader``."""

    def failed(self, error: BaseException) -> None:
        """An attempt failed with ``error``."""

    def release(self) -> None:
        """Return the memory: the batch is not in flight and has its outcome, or was split.

        Raises ValueError the second time.
        """
