from collections.abc import Callable, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer, disjoint_base

from kprod_ext.batch import ProducerBatch
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.record import RecordClock

@final
class StickyPartition:
    """The partition for records without a key, until its share is used up. Thread-safe.

    The share is used up after ``batch_size`` bytes if the partition's batch is full, otherwise
    after twice as many: switching while a batch is open would make every batch too small
    (``BuiltInPartitioner``, KIP-794). ``spent`` is then True, and records go to ``following``,
    which was chosen in advance. If ``following`` is None, the next partition must be chosen. Raises
    ValueError for a negative partition or a batch size below 1.
    """

    def __new__(
        cls, partition: int, batch_size: int, following: StickyPartition | None = None
    ) -> StickyPartition: ...
    @property
    def partition(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def spent(self) -> bool: ...
    @property
    def following(self) -> StickyPartition | None: ...
    def current(self) -> StickyPartition:
        """The first in the chain that is not spent; the last one if all are spent."""

    def chain(self) -> list[StickyPartition]:
        """This partition and all that follow it."""

    def add(self, nbytes: int, batch_ready: bool) -> bool:
        """Count a record; return ``spent``. ``batch_ready``: the partition's batch is full."""

@disjoint_base
class AppendContext:
    """State shared by all queues of one accumulator. Thread-safe.

    ``now`` is the monotonic clock. ``on_change`` is called, under a queue's lock, with a queue that
    the sender should check; it must be a C function. ``incomplete`` gets every batch before it is
    queued. ``wake`` wakes the sender; ``wake_within`` makes it check within some seconds; ``wait``
    is how threads wait for a batch. Closed batches are offered to ``compression``. ``refusal``
    returns why no record may be queued now, and ``closings`` counts how often all open batches were
    closed.
    """

    refusal: Any
    closed: bool
    closings: int

    def __init__(
        self,
        pool: BufferPool,
        *,
        batch_size: int,
        batch_max_size: int,
        clock: RecordClock,
        now: Callable[[], float],
        batch_type: type[ProducerBatch],
        delivery_type: Callable[..., Any],
        callbacks: Any,
        ratios: Any,
        incomplete: set[ProducerBatch],
        on_change: Callable[[PartitionQueue], object],
        wake: Callable[[], object],
        wake_within: Callable[[float], object],
        wait: Callable[..., bool] | None = None,
        compression: Any = None,
    ) -> None: ...
    @property
    def pool(self) -> BufferPool: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def batch_max_size(self) -> int: ...
    @property
    def clock(self) -> RecordClock: ...
    @property
    def callbacks(self) -> Any: ...

@final
class AppendResult:
    """One record that was queued (Kafka's ``RecordAppendResult``).

    ``batch_ready``: the record has filled its batch, so the sticky partitioner may switch.
    ``wake_sender``: the sender has something to send; the queue, or a bulk call, wakes the sender.
    ``linger``: if a batch was created, the seconds within which the sender checks it; otherwise
    None.
    """

    @property
    def future(self) -> Any: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def batch_ready(self) -> bool: ...
    @property
    def wake_sender(self) -> bool: ...
    @property
    def linger(self) -> float | None: ...

@disjoint_base
class PartitionQueue:
    """The batches of one partition, oldest first, under one lock. Any thread may append.

    Only the sender thread removes batches, so the oldest one stays the oldest until it is taken.
    ``batch_max_size`` is less than that of the context after a broker has refused a batch as too
    large. ``grows_to`` is the batch size limit for the leader's node, as of the sender's last
    check. If ``retired``, nothing is queued here, because the partition has, or will get, another
    queue. ``partition`` is the sender's state of the partition, None before its first check.
    """

    retired: bool
    batch_max_size: int
    grows_to: int
    partition: Any

    def __new__(cls, context: AppendContext, tp: Any, settings: Any) -> Self: ...
    @property
    def context(self) -> AppendContext: ...
    @property
    def tp(self) -> Any: ...
    @property
    def settings(self) -> Any: ...
    @property
    def linger(self) -> float: ...
    @property
    def acks(self) -> int: ...
    @property
    def expedite(self) -> Callable[[], None]: ...
    @property
    def wait(self) -> Any: ...
    def append(
        self,
        timestamp_ms: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
        buffer: PooledBuffer | None = None,
    ) -> AppendResult | None:
        """Write a record into the open batch, or a new one in ``buffer`` or in free memory.

        A record without a timestamp gets the current time. Returns None if no memory is free, the
        queue is retired, or no record may be queued now. Raises the errors of
        ``MemoryRecordsBuilder.append`` for invalid arguments; nothing is queued then. If a signal
        handler raises, the record may or may not be queued.
        """

    def append_to_open(
        self,
        timestamp_ms: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
    ) -> AppendResult | None:
        """Like ``append``, but only into an open batch that is not full and has room; else None."""

    def batch_filled(self) -> None:
        """Report to the sender that a record has filled the open batch."""

    def close_open_batch(self) -> None:
        """Accept no more records in the open batch. When this returns, no append is in progress."""

    @property
    def depth(self) -> int:
        """Number of queued batches."""

    @property
    def oldest(self) -> ProducerBatch | None:
        """The batch that the sender takes first."""

    def head(self) -> tuple[ProducerBatch | None, bool]:
        """The oldest batch, and whether the sender should send it immediately."""

    def has(self, batch: ProducerBatch) -> bool:
        """Whether ``batch`` is queued here."""

    def close_head(self) -> None:
        """End appends to the oldest batch, which is about to be taken. IndexError without one."""

    def take_head(self) -> ProducerBatch:
        """Remove the oldest batch, after ``close_head``."""

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a taken batch again. Such batches keep the order in which they were first taken."""

    def remove(self, batch: ProducerBatch) -> None:
        """Remove one batch at any position, if it is queued."""

    def retire(self) -> bool:
        """Retire the queue if it has no batch. Returns whether it is retired."""

    def take_expired(self, created_before: float) -> list[ProducerBatch]:
        """Remove the batches at the head that were created before a time, oldest first."""

    def take_all(self) -> list[ProducerBatch]:
        """Remove every batch."""
