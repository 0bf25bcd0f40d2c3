from typing import Any, final

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
