"""One batch of one partition, from its first record to its outcome (Kafka's ``ProducerBatch``).

A batch passes through several hands and is owned by one at a time: callers append to it while it is
the last of its queue (by its ``PartitionAppender``), and one may compress it when it is full; the
sender's thread takes it from the head, seals it and puts it into a request; the request keeps its
memory until it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import Compressor
from kprod.buffer.delivery import BatchDelivery, Wait
from kprod.buffer.future import FutureRecordMetadata
from kprod.cluster.snapshot import Leadership
from kprod.errors import KprodError
from kprod.types import BytesLike, Header, TopicPartition
from kprod_ext.batch import MemoryRecordsBuilder, SealedBatch
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.futures import track, untrack
from kprod_ext.partition_queue import write_first

NO_SEQUENCE = -1


class ProducerId(NamedTuple):
    """Who writes, as the broker knows it: an id and the epoch of that id.

    ``transactional``: what it writes belongs to the transaction that is open (KIP-98).
    """

    producer_id: int
    epoch: int
    transactional: bool = False


class ProducerBatch:
    """Records of one partition that travel, are acknowledged and fail together.

    Thread: ``write_first`` under the queue's lock; every other method by the sender's thread only.
    Times are seconds on the monotonic clock. The garbage collector sees a batch from its first
    failure on, for the traceback of an error may lead back to it.
    """

    __slots__ = (
        "_buffer",
        "_pool",
        "attempted_leader",
        "attempts",
        "base_sequence",
        "builder",
        "created_at",
        "delivery",
        "drain_order",
        "in_line",
        "last_attempt_at",
        "last_error",
        "maybe_written",
        "on_wire",
        "overtaken",
        "producer",
        "records",
        "retry_at",
        "sequences",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        pool: BufferPool,
        buffer: PooledBuffer,
        builder: MemoryRecordsBuilder,
        now: float,
        hurry: Callable[[], None],
        callbacks: Callbacks | None = None,
        wait: Wait | None = None,
    ) -> None:
        self.tp = tp
        self._pool = pool
        self._buffer = buffer
        self.builder = builder
        self.delivery = BatchDelivery(tp, hurry, callbacks, wait)
        self.created_at = now
        self.attempts = 0
        self.last_attempt_at = now
        self.retry_at = now
        self.last_error: KprodError | None = None
        self.attempted_leader: Leadership | None = None
        self.producer: ProducerId | None = None
        self.base_sequence = NO_SEQUENCE
        self.sequences: Any = None  # of its partition: for Sequences, once it has looked them up
        self.drain_order: tuple[int, ...] | None = None
        self.in_line = False  # among those of its partition that were sent and have no outcome
        self.maybe_written = False
        self.on_wire = False
        self.overtaken = False
        self.records: SealedBatch | None = None
        untrack(self)

    # The caller that made it, under the queue's lock ----------------------------------------------

    def write_first(
        self,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> tuple[FutureRecordMetadata, int] | None:
        """Write the record the batch was made for; its future and bytes, or None without room."""
        return write_first(
            FutureRecordMetadata, self.builder, self.delivery, timestamp_ms, key, value, headers
        )

    @property
    def is_full(self) -> bool:
        """True when it should leave; until it is taken it may have room for more."""
        return self.builder.is_full

    # The sender's thread ------------------------------------------------------------------------

    @property
    def record_count(self) -> int:
        """Records in the batch."""
        return self.builder.record_count

    @property
    def size(self) -> int:
        """Bytes of the whole batch on the wire: exact once sealed, estimated before."""
        return (
            len(self.records) if self.records is not None else self.builder.estimated_bytes_written
        )

    @property
    def has_sequence(self) -> bool:
        """True once the batch was given its place in the partition's sequence."""
        return self.base_sequence != NO_SEQUENCE

    def give_sequence(self, producer: ProducerId, base_sequence: int) -> None:
        """Set producer id, epoch and base sequence; a sealed batch gets a new header."""
        if self.builder.is_closed:
            self.records = None  # the header below it is about to change
            self.builder.reopen_producer_state(producer.producer_id, producer.epoch, base_sequence)
            self.records = SealedBatch(self.builder)
        else:
            self.builder.set_producer_state(
                producer.producer_id, producer.epoch, base_sequence, producer.transactional
            )
        self.producer, self.base_sequence = producer, base_sequence

    def seal(self, compress: Compressor | None) -> None:
        """Freeze the bytes: what is sent first is what every retry sends."""
        if self.records is None:
            self.builder.close(compress)
            self.records = SealedBatch(self.builder)

    def attempt(self, now: float, leader: Leadership | None) -> None:
        """The batch goes out to ``leader``."""
        self.attempts += 1
        self.last_attempt_at = now
        self.attempted_leader = leader
        self.on_wire = True

    def failed(self, error: KprodError) -> None:
        """An attempt ended in ``error``."""
        self.last_error = error
        track(self)

    def release(self) -> None:
        """Give the memory back: the batch is off the wire and has its outcome, or was split."""
        self.records = None
        self._pool.deallocate(self._buffer)

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.tp} records={self.record_count} attempts={self.attempts}"
            f" sequence={self.base_sequence}>"
        )
