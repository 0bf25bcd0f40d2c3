from collections.abc import Callable
from typing import Any, final

from kprod_ext.bulk_stop import BulkStop
from kprod_ext.compiled_send import TopicAppender
from kprod_ext.record_chunk import RecordChunk
from kprod_ext.sent_records import SentRecords
from kprod_ext.sticky_partition import StickyPartition

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
