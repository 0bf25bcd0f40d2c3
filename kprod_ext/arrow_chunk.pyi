from typing import final

from kprod_ext.arrow_source import ArrowSource
from kprod_ext.record_chunk import RecordChunk

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
    def begin(self, largest: int) -> tuple[int, str, int] | None:
        """Begin to read the source's batch at hand, having looked at each of its rows.

        The first row that cannot be a record, and why: "null", "partition", "timestamp", "headers",
        "broken", or "size" for one whose batch would have more than ``largest`` bytes. With "size"
        comes how many, as ``batch_size_upper_bound`` has it; else, and beyond 2 GiB, -1.
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
