"""A block of records in memory, column by column, for a bulk call."""

from typing import Any, Protocol, final, type_check_only

from typing_extensions import disjoint_base

@disjoint_base
class RecordChunk:
    """A block of at most ``capacity`` records in memory that a ``BulkAppender`` writes.

    It has ``count`` records; ``at`` is the number of the next one to be written. Not thread-safe.
    Raises ValueError for a capacity below 1 or above 2**20.
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
        """Number of records not written yet: those loaded, and those that the chunk will load."""
    def row(
        self,
    ) -> tuple[
        int | None,
        memoryview | bytes | None,
        memoryview | bytes | None,
        tuple[tuple[str, bytes | None], ...],
    ]:
        """The next record: its timestamp in ms (None: now), key, value, headers.

        Keys and values may be memoryviews. Release them before the chunk is filled again, which may
        free their memory. Raises IndexError after the last record.
        """

@type_check_only
class RowChecks(Protocol):
    """Converts cells that do not have the plain type; ``row`` counts from 0 in each load."""

    def payload(self, row: int, field: str, data: Any) -> bytes | None:
        """Convert a key or value that is neither ``bytes`` nor None."""
    def partition(self, row: int, partition: Any) -> int | None:
        """Convert a partition that is not an exact ``int`` from 0 to 2**31 - 1."""
    def timestamp(self, row: int, timestamp_ms: Any) -> int | None:
        """Convert a timestamp that is not an exact ``int`` from 0 to 2**63 - 1."""
    def headers(self, row: int, headers: Any) -> tuple[tuple[str, bytes | None], ...]:
        """Return a record's own headers in an immutable form."""
    def size(self, row: int, key: Any, value: Any, headers: Any) -> None:
        """Raise if a record is too large."""

@final
class ObjectChunk(RecordChunk):
    """Records that are Python objects; the chunk keeps them alive.

    ``checks.size`` is called for a record whose key, value and headers exceed ``largest`` bytes.
    """

    def __new__(cls, capacity: int, largest: int, checks: RowChecks) -> ObjectChunk: ...
    @property
    def largest_partition(self) -> int:
        """The largest partition in all loads so far; -1 if no record had one."""
    def load(
        self,
        values: list[Any],
        keys: list[Any] | None = None,
        headers: list[Any] | tuple[tuple[str, bytes | None], ...] | None = None,
        partitions: list[Any] | int | None = None,
        timestamps_ms: list[Any] | int | None = None,
    ) -> None:
        """Replace the records; all lists have the length of ``values``.

        Without ``keys``, an item of ``values`` that is a pair is (key, value). ``headers`` is a
        list with the headers of each record, or a tuple of headers for all records. If a check
        raises, the rows before the invalid one are loaded. Raises ValueError for more rows than
        ``capacity`` or lists of different lengths.
        """

def all_plain(values: list[Any], keys: list[Any] | None, largest: int) -> bool:
    """Whether every value and key is ``bytes`` or None, and no record exceeds ``largest`` bytes.

    Without ``keys``, a value may also be a pair of a key and a value. Raises ValueError for lists
    of different lengths.
    """

def held(data: Any, /) -> Any:
    """The data, or a copy as bytes if it is a buffer; for a pair, the same for both items.

    Data that cannot be sent is returned unchanged.
    """

def partitions_for_keys(chunk: RecordChunk, rows: int, partitions: int, /) -> bytes:
    """The results of ``partition_for_key`` for the next ``rows`` rows; takes them from the chunk.

    Returns integers of 32 bits in the machine's byte order, -1 for a row without a key. Raises
    ValueError for an invalid number of partitions, or if there are fewer rows.
    """
