from collections.abc import Callable
from enum import IntEnum
from typing import Any, final

from kprod_ext.partition_queue import StickyPartition
from kprod_ext.rows import RecordChunk
from kprod_ext.send import TopicAppender

@final
class RecordRun:
    """``count`` records of one place that follow each other in one batch.

    ``delivery`` tells the batch's outcome, ``first`` where in the batch the run begins, ``ordinal``
    how many records of the same ``place`` came before it. Read-only.
    """

    @property
    def place(self) -> int: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def delivery(self) -> Any: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...

@final
class SentRecords:
    """Where each of up to 2**32 - 1 records went. Reading is thread-safe once all were added."""

    def __new__(cls) -> SentRecords: ...
    @property
    def count(self) -> int: ...
    @property
    def runs(self) -> list[RecordRun]: ...
    def add(self, place: int, delivery: Any, index: int) -> None:
        """Note one more record: number ``index`` of a batch at ``place``, which counts from 0.

        Raises ValueError for a negative place.
        """
    def locate(self, record: int) -> tuple[Any, int]:
        """The delivery of a record's batch and its index there. Raises IndexError."""
    def records_of(self, pieces: list[tuple[int, int, int]]) -> list[int]:
        """The numbers, in order, of records given as (place, first ordinal, count)."""

@final
class BulkTurn:
    """Lets one bulk call at a time lock several batches. One for all calls of a producer.

    Thread-safe. A thread that locks one batch while it has another one locked must hold this first.
    """

    def __new__(cls) -> BulkTurn: ...

@final
class BulkAppender:
    """Writes chunks of records into the open batches of one topic, in order. One thread at a time.

    The batches are found in ``topic``, the same that ``send`` looks in. ``sent`` is told where
    every record went.
    """

    def __new__(cls, topic: TopicAppender, turn: BulkTurn, sent: SentRecords) -> BulkAppender: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def partition(self) -> int:
        """The partition that ``write`` stopped at."""
    @property
    def filled(self) -> list[int]:
        """Partitions whose batches the last ``write`` left full; some may be named twice."""
    @property
    def share(self) -> int:
        """Which of its ``stickies`` the last ``write`` left in use; their number if it was none."""
    @property
    def record_bytes(self) -> int:
        """Bytes that a record takes, as far as is known; 0 before the first stop for room."""
    def write(
        self,
        chunk: RecordChunk,
        stickies: list[StickyPartition],
        spares: list[Any],
        publish: Callable[[int, Any], Any],
    ) -> BulkStop:
        """Write the chunk's records from ``chunk.at`` on. Releases the interpreter meanwhile.

        Records without key and partition go to the ``stickies``, one after the other. ``spares``
        have a ``builder`` each, without records, that no other thread knows. Those that were begun
        are taken out of the list. ``publish(partition, spare)`` is called for each of them: it
        queues the batch and returns its delivery.

        Returns why it stopped. Raises ValueError when the next record is too large for any batch or
        its timestamp is negative. The records before the stop are written.
        """
    def appended(self, chunk: RecordChunk, delivery: Any, index: int) -> None:
        """The chunk's next record, of ``partition``, became number ``index`` of a batch."""
    def finish(self) -> None:
        """Complete ``sent``: nothing more will be written."""

class BulkStop(IntEnum):
    """What ``BulkAppender.write`` returns."""

    DONE = 0
    """Every record of the chunk was written."""
    NO_ROOM = 1
    """The next record needs a new batch of ``partition``, and no spare one can be it."""
    NOT_ADMITTED = 2
    """The next record is the first for ``partition``, as far as the topic's appender knows."""
    NO_STICKY = 3
    """The next record has neither partition nor key, and no sticky partition has a share left."""
