from collections.abc import Callable, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer, disjoint_base

from kprod_ext.batch import ProducerBatch
from kprod_ext.buffer_pool import BufferPool, PooledBuffer
from kprod_ext.record import RecordClock

@final
class StickyPartition:
    """The partition that records without a key go to, until it has had its share. Thread-safe.

    Its share is ``batch_size`` bytes once its batch is full, and ``2 * batch_size`` in any case:
    switching while a batch is open would cut every batch short (``BuiltInPartitioner``, KIP-794).
    ``spent`` turns True then, and stays so. Records go on to ``following``, which was drawn ahead;
    None: the next partition has to be drawn. Raises ValueError for a negative partition or a batch
    size below 1.
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
        """The first of this one and those after it with a share left; the last if none has one."""

    def add(self, nbytes: int, batch_ready: bool) -> bool:
        """Count a record; returns ``spent``. ``batch_ready``: the partition's batch is full."""

@disjoint_base
class AppendContext:
    """State shared by all queues of one accumulator. Thread-safe.

    ``now`` is the monotonic clock, ``note`` is called with a queue that the sender should look at,
    under the queue's lock: it must be a function of C. ``incomplete`` gets every batch before it is
    queued. ``wake`` and ``look_within`` let the sender look; ``hurry`` and ``wait`` are those of
    the deliveries, and get the queue first; ``compression`` is offered batches that are closed.
    ``refusal`` says why no record may be queued now, and ``closings`` counts the times when
    all open batches were closed.
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
        note: Callable[[PartitionQueue], object],
        wake: Callable[[], object],
        look_within: Callable[[float], object],
        hurry: Callable[[PartitionQueue], object],
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

    ``batch_ready``: it has filled its batch, so the sticky partitioner may move on.
    ``wake_sender``: the sender has something to send; the queue, or a bulk call, wakes it.
    ``linger``: a batch was created, which the sender looks at within so many seconds; None: none
    was.
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

    Only the sender's thread removes batches, so the oldest stays the oldest until it takes it.
    ``batch_max_size`` is less than that of the context once a broker found a batch too large, and
    ``grows_to`` is what the leader's node allowed when the sender looked last;
    ``retired``: the partition has, or will have, another queue, and nothing is queued here any
    more. ``leader``, ``queues_of_node``, ``found_in``, ``look`` and the place in a ``QueueList``
    are ``ReadyTracker``'s.
    """

    retired: bool
    batch_max_size: int
    grows_to: int
    leader: Any
    queues_of_node: Any
    found_in: int
    look: int
    queue_list: Any
    before: Any
    after: Any

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
    def hurry(self) -> Callable[[], None]: ...
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

        A record without a time gets the present time. Returns None when no memory is free, the
        queue is retired, or no record may be queued now. Raises what
        ``MemoryRecordsBuilder.append`` raises for bad arguments; nothing is queued then. An
        exception of a signal handler may come before or after the record was queued.
        """

    def append_to_open(
        self,
        timestamp_ms: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
    ) -> AppendResult | None:
        """As ``append``, but None when the open batch is full and would only grow."""

    def batch_filled(self) -> None:
        """A record has filled the open batch: the sender should look."""

    def close_open_batch(self) -> None:
        """Take no more records into the open batch. When this returns, no append is under way."""

    @property
    def depth(self) -> int:
        """Number of queued batches."""

    @property
    def oldest(self) -> ProducerBatch | None:
        """The batch that the sender takes first."""

    def head(self) -> tuple[ProducerBatch | None, bool]:
        """The oldest batch, and whether the sender should send it at once."""

    def has(self, batch: ProducerBatch) -> bool:
        """Whether ``batch`` is queued here."""

    def close_head(self) -> None:
        """End appends to the oldest batch, which is about to be taken."""

    def take_head(self) -> ProducerBatch:
        """Remove the oldest batch, after ``close_head``."""

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a taken batch again, in the order of first taking among others that came back."""

    def remove(self, batch: ProducerBatch) -> None:
        """Remove one batch at any position, if it is queued."""

    def retire(self) -> bool:
        """Retire the queue if it has no batch. Returns whether it is retired."""

    def take_expired(self, created_before: float) -> list[ProducerBatch]:
        """Remove the batches at the head that were created before a time, oldest first."""

    def take_all(self) -> list[ProducerBatch]:
        """Remove every batch."""
