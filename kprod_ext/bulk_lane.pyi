from collections.abc import Callable
from typing import Any, Literal, final

from kprod_ext.open_batch import OpenBatch
from kprod_ext.record_chunk import RecordChunk
from kprod_ext.sent_records import SentRecords
from kprod_ext.sticky_partition import StickyPartition

@final
class BulkTurn:
    """Whose turn it is to hold several open batches at once. One for all lanes to the same batches.

    Thread-safe. Who holds one open batch while waiting for another must hold this first.
    """

    def __new__(cls) -> BulkTurn: ...

@final
class BulkLane:
    """Writes chunks of records into the open batches of one topic, in order. One thread at a time.

    ``sent`` is told where every record went. Raises ValueError for a ``partition_count`` below 1.
    """

    def __new__(cls, partition_count: int, turn: BulkTurn, sent: SentRecords) -> BulkLane: ...
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
    def per_batch(self) -> int:
        """Records in the batch that was full last; 0 before there was one."""
    def admit(self, partition: int, batch: OpenBatch) -> None:
        """Let records of this partition be written into that open batch. Raises IndexError."""
    def write(
        self,
        chunk: RecordChunk,
        stickies: list[StickyPartition],
        spares: list[Any],
        publish: Callable[[int, Any], Any],
    ) -> Literal["done", "no room", "unknown", "sticky"]:
        """Write the chunk's records from ``chunk.at`` on. Releases the interpreter meanwhile.

        Records without key and partition go to the ``stickies``, one after the other. ``spares``
        have a ``builder`` each, without records, that nobody else knows: those that were begun are
        taken out of the list, and ``publish(partition, spare)`` is called for each, which queues it
        and returns the delivery of its batch.

        Says why it stopped: all are written; the next one needs a new batch of ``partition``, which
        no spare can be; the open batch of ``partition`` must be admitted; the next one has neither
        key nor partition, and all ``stickies`` have had their share. Raises ValueError when the
        next one is too large for any batch or its timestamp is negative. What came before it is
        written.
        """
    def appended(self, chunk: RecordChunk, delivery: Any, index: int) -> None:
        """The chunk's next record, of ``partition``, became number ``index`` of a batch."""
    def finish(self) -> None:
        """Complete ``sent``: nothing more will be written."""
