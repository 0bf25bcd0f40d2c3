from typing import Any, final

from kprod_ext.rows import RecordChunk

@final
class ArrowSource:
    """Batches of records from an object with ``__arrow_c_array__`` or ``__arrow_c_stream__``.

    Releases what was exported exactly once, at the latest with itself. Not thread-safe. Raises
    TypeError for an object that has neither, or for data without columns; OSError when the stream
    fails.
    """

    def __new__(cls, data: Any) -> ArrowSource: ...
    def columns(self) -> list[tuple[str, str, bool, list[Any]]]:
        """Name, Arrow format and whether it is dictionary-encoded; and the same of its children."""
    def next_batch(self) -> int:
        """Go on to the next batch. Returns its number of rows, or -1 after the last batch.

        Raises OSError when the stream fails, ValueError for a batch that does not fit.
        """

@final
class ArrowChunk(RecordChunk):
    """Records from the batches of an ``ArrowSource``, column by column; its batch stays alive.

    The columns are numbers, -1 for none, of formats that can be what they are to be: bytes or text;
    for ``headers`` a list or map of two such; integers. ``multiplier`` and ``divisor`` make
    milliseconds of a timestamp. Raises TypeError for a format that cannot be read.
    """

    def __new__(
        cls,
        capacity: int,
        source: ArrowSource,
        value: int,
        key: int,
        headers: int,
        partition: int,
        timestamp: int,
        multiplier: int,
        divisor: int,
    ) -> ArrowChunk: ...
    @property
    def largest_partition(self) -> int:
        """The largest partition any batch has named, -1 for none."""
    @property
    def left(self) -> int:
        """Rows of the batch that were not read. After all was written: there was no memory."""
    def next_batch(self, largest: int) -> tuple[int, tuple[int, str, int] | None] | None:
        """Go on to the source's next batch: its number of rows, and the first bad one of them.

        None after the last batch. The bad row's number, and why it cannot be a record:
        "null", "partition", "timestamp", "headers", "broken", or "size" for a row that would make
        a batch of more than ``largest`` bytes. The third item is that size by
        ``batch_size_upper_bound`` with "size"; else, and beyond 2 GiB, -1. Raises as
        ``ArrowSource.next_batch``, and MemoryError.
        """
    def next_row(
        self,
    ) -> (
        tuple[
            int | None, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]
        ]
        | None
    ):
        """Take the next record: partition, timestamp in ms, key, value, headers. None: no more."""
