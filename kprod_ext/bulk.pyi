from enum import IntEnum
from typing import Any, final

from kprod_ext.partition_queue import AppendResult, StickyPartition
from kprod_ext.rows import RecordChunk
from kprod_ext.send import TopicAppender

@final
class SentRecords:
    """The positions of up to 2**32 - 1 records. Reading is thread-safe once all are added.

    The positions take twelve bytes per run of consecutive records in one batch.
    """

    def __new__(cls) -> SentRecords: ...
    @property
    def count(self) -> int: ...
    def add(self, delivery: Any, index: int) -> None:
        """Add the position of one more record: ``index`` in the batch with this ``delivery``.

        Raises ValueError for an index outside of 0 to 2**32 - 1.
        """
    def runs(self) -> list[tuple[Any, int, int]]:
        """Runs of consecutive records in a batch: delivery, index of the first record, count.

        There is nearly always one run per batch. Runs are in the order of their first records.
        """
    def locate(self, record: int) -> tuple[Any, int]:
        """The delivery of a record's batch and its index there. Raises IndexError."""
    def records_of(self, pieces: list[tuple[Any, int, int]]) -> list[int]:
        """The numbers, ascending, of records that are given as (delivery, first index, count).

        Raises KeyError for a delivery of which no record was added.
        """

@final
class BulkAppender:
    """Writes chunks of records into the batches of one topic, in order. One thread at a time.

    ``topic`` contains the partitions' queues, as for ``send``. ``sent`` records the position of
    every record.
    """

    def __new__(cls, topic: TopicAppender, sent: SentRecords) -> BulkAppender: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def partition(self) -> int:
        """The partition at which ``write`` stopped."""
    @property
    def nbytes(self) -> int:
        """Number of bytes of the records that this appender has written."""
    @property
    def sticky(self) -> StickyPartition | None:
        """The partition of the next record without a key; None if all shares are used up."""
    def stick_to(self, stickies: list[StickyPartition]) -> None:
        """Append records without a key to these partitions, one partition after the other."""
    def write(self, chunk: RecordChunk) -> BulkStop:
        """Write the chunk's records from ``chunk.at`` on. Returns why it stopped.

        Never waits for memory. Releases the GIL, and takes it for each new batch. The records
        before the stop are queued. If a signal handler raises, one record more than ``sent``
        contains may be queued. Raises OverflowError for more records than ``sent`` can hold,
        ValueError for a record that is too large for any batch.
        """
    def appended(self, chunk: RecordChunk, result: AppendResult) -> None:
        """The caller has appended the chunk's next record, which is for ``partition``."""

class BulkStop(IntEnum):
    """Why ``BulkAppender.write`` stopped."""

    DONE = 0
    """Every record of the chunk was written."""
    NO_MEMORY = 1
    """The next record needs a new batch of ``partition``, and the pool has no free memory.

    Or the queue accepts no records now: the producer is closed or not in a transaction.
    """
    NOT_ADMITTED = 2
    """The next record is the first for ``partition``, as far as the topic's appender knows."""
    NO_STICKY = 3
    """The next record has neither partition nor key, and no sticky partition has a share left."""
