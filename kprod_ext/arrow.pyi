from typing import Any, final

from kprod_ext.rows import RecordChunk

@final
class ArrowSource:
    """Batches of records from an object with ``__arrow_c_array__`` or ``__arrow_c_stream__``.

    Releases the exported data exactly once, at the latest when the source is freed. Not
    thread-safe. Raises TypeError for an object that has neither method, or for data without
    columns. Raises OSError if the stream fails.
    """

    def __new__(cls, data: Any) -> ArrowSource: ...
    def columns(self) -> list[tuple[str, str, bool, list[Any]]]:
        """For each column: name, Arrow format, whether it is dictionary-encoded, its children."""
    def next_batch(self) -> int:
        """Move to the next batch. Returns its number of rows, or -1 after the last batch.

        Raises OSError if the stream fails, and ValueError for a batch that does not fit its schema.
        """

@final
class ArrowChunk(RecordChunk):
    """Records from the columns of an ``ArrowSource``; keeps the current batch alive.

    The arguments are the numbers of the columns, -1 for none. Values and keys are bytes or text,
    headers are lists or maps of pairs of these, partitions and timestamps are integers. A timestamp
    times ``multiplier`` divided by ``divisor`` is in milliseconds. Raises TypeError for a format
    that cannot be read.
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
        """The largest partition in all batches so far; -1 if no row had one."""
    @property
    def left(self) -> int:
        """The number of rows of the batch that were not read.

        If some are left, memory was short.
        """
    def next_batch(self, largest: int) -> tuple[int, tuple[int, str, int] | None] | None:
        """Move to the source's next batch; return its number of rows, and the first bad row.

        Returns None after the last batch. The bad row is None if all rows are good. Otherwise it is
        a tuple of the number of the row, a reason and a size. The reason is "null", "partition",
        "timestamp", "headers", "broken", or "size" for a row whose batch would have more than
        ``largest`` bytes. With "size", the size is the result of ``batch_size_upper_bound``. It is
        -1 beyond 2 GiB, and with other reasons. Raises the errors of ``ArrowSource.next_batch``,
        and MemoryError.
        """
    def next_row(
        self,
    ) -> (
        tuple[
            int | None, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]
        ]
        | None
    ):
        """Take the next record: partition, timestamp in ms, key, value, headers. None: the end."""
