"""A block of records in memory, column by column, for a bulk call."""

from typing import Any, Protocol, final, type_check_only

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
        """Records not written yet: those loaded, and those that the chunk will load."""
    def row(
        self,
    ) -> tuple[
        int | None,
        memoryview | bytes | None,
        memoryview | bytes | None,
        tuple[tuple[str, bytes | None], ...],
    ]:
        """The next record: its timestamp in ms (None: now), key, value, headers.

        Release a memoryview before the chunk is filled again, which may free its memory. Raises
        IndexError after the last record.
        """

@type_check_only
class RowChecks(Protocol):
    """Converts a cell that is not of the plain type; ``row`` counts from 0 in this load."""

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
    """Records that are Python objects, which it keeps alive.

    ``checks.size`` is called for a record whose key, value and headers exceed ``largest`` bytes.
    """

    def __new__(cls, capacity: int, largest: int, checks: RowChecks) -> ObjectChunk: ...
    @property
    def largest_partition(self) -> int:
        """The largest partition any load has named, -1 for none."""
    def load(
        self,
        values: list[Any],
        keys: list[Any] | None = None,
        headers: list[Any] | tuple[tuple[str, bytes | None], ...] | None = None,
        partitions: list[Any] | int | None = None,
        timestamps_ms: list[Any] | int | None = None,
    ) -> None:
        """Replace the records; all lists have the length of ``values``.

        Without ``keys`` an item of ``values`` that is a pair is (key, value). ``headers`` is a list
        with each record's own, or a tuple that all share. If a check raises, the rows before the
        invalid one are loaded. Raises ValueError for more rows than ``capacity`` or lists of
        different lengths.
        """

def all_plain(values: list[Any], keys: list[Any] | None, largest: int) -> bool:
    """Whether every value and key is ``bytes`` or None, or (without ``keys``) a pair of them.

    And no more than ``largest`` bytes for any record. Raises ValueError for lists of two lengths.
    """

def held(data: Any, /) -> Any:
    """The data, or bytes with what it holds now if it is a buffer; the same for both of a pair.

    What cannot be sent stays as it is.
    """

def partitions_for_keys(chunk: RecordChunk, rows: int, partitions: int, /) -> bytes:
    """``partition_for_key`` of the keys of the next ``rows`` rows, which are taken from the chunk.

    Returns integers of 32 bits in the machine's byte order, -1 for a row without a key. Raises
    ValueError for a number of partitions that no topic has, or for fewer rows.
    """
