from collections.abc import Sequence
from typing import Any, TypeVar, final

from typing_extensions import Buffer

from kprod_ext.batch import MemoryRecordsBuilder
from kprod_ext.futures import RecordFuture
from kprod_ext.record_clock import RecordClock

@final
class StickyPartition:
    """The partition that records without a key go to, until it has had its share. Thread-safe.

    Its share is ``batch_size`` bytes once its batch is full, and ``2 * batch_size`` in any case:
    switching while a batch is open would cut every batch short (``BuiltInPartitioner``, KIP-794).
    ``spent`` turns True then, and stays so. Raises ValueError for a negative partition or a batch
    size below 1.
    """

    def __new__(cls, partition: int, batch_size: int) -> StickyPartition: ...
    @property
    def partition(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def spent(self) -> bool: ...
    def add(self, nbytes: int, batch_ready: bool) -> bool:
        """Count a record; returns ``spent``. ``batch_ready``: the partition's batch is full."""

_F = TypeVar("_F", bound=RecordFuture)

@final
class PartitionAppender:
    """The batch of one partition that takes records, if there is one. Thread-safe.

    ``future_type`` is a subclass of RecordFuture without ``__init__``: what an append returns.
    Every append to a batch that was opened here goes through here. ``clock`` stamps records without
    a time; None: a new one of the system's.
    """

    def __new__(
        cls, future_type: type[RecordFuture], clock: RecordClock | None = None
    ) -> PartitionAppender: ...
    @property
    def clock(self) -> RecordClock: ...
    @property
    def last_bytes(self) -> int:
        """The bytes that the record takes which ``try_append`` took last."""

    @property
    def last_full(self) -> bool:
        """Whether it made the batch full, which one record of a batch does."""

    def open(self, builder: MemoryRecordsBuilder, delivery: Any) -> None:
        """Take records into this batch from now on; its futures refer to ``delivery``.

        Raises ValueError when the builder is open in another PartitionAppender.
        """

    def shut(self) -> None:
        """Take no more records. When this returns, no append is under way."""

    def try_append(
        self,
        timestamp_ms: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> Any:
        """Append a record, now if it has no time: its future.

        ``last_bytes`` and ``last_full`` tell of it until the next call. None when no batch is open,
        or the open one has no room and is closed for append now.
        Raises what ``MemoryRecordsBuilder.append`` raises for bad arguments.
        """

def write_first(
    future_type: type[_F],
    builder: MemoryRecordsBuilder,
    delivery: Any,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]] = (),
) -> tuple[_F, int] | None:
    """Write a record into a batch that no other thread knows yet.

    Its future and the bytes it takes; None when there is no room. Raises as ``try_append``.
    """
