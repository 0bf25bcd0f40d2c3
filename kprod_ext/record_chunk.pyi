from typing_extensions import disjoint_base

@disjoint_base
class RecordChunk:
    """A block of records in memory that a ``BulkAppender`` writes, ``capacity`` of them at most.

    ``count`` records are there, ``at`` is the next to be written. Not thread-safe. Raises
    ValueError for a capacity below 1 or above 2**20.
    """

    def __new__(cls, capacity: int) -> RecordChunk: ...
    @property
    def capacity(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def at(self) -> int: ...
    @property
    def to_come(self) -> int:
        """Records that are not written yet, here and in what the chunk will read."""
    @property
    def spreads(self) -> bool:
        """Whether its records may go to more than one partition at a time."""
    def row(
        self,
    ) -> tuple[
        int | None,
        memoryview | bytes | None,
        memoryview | bytes | None,
        tuple[tuple[str, bytes | None], ...],
    ]:
        """The next record: its timestamp in ms (None: now), key, value, headers.

        A memoryview is of memory the chunk may let go of: release it before the chunk is filled
        again. Raises IndexError when there is no next record.
        """
