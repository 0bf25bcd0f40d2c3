"""Reading a partition as it was at one moment, while it is written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from kprod.broker.log.indexes import AbortedTransaction, TimestampOffset
from kprod.broker.log.local_log import holder
from kprod.broker.log.segment import LogSegment
from kprod.broker.records.file_slice import FileSlice

OnFailure: TypeAlias = Callable[[OSError], None]
"""Is told, without any lock, that the disk failed."""


def ignore_failure(_: OSError) -> None:
    """For a log that no directory has."""


class Appended(NamedTuple):
    """Where a batch is. ``log_append_time`` is -1 except for a duplicate, as Kafka answers it."""

    base_offset: int
    log_append_time: int
    log_start_offset: int


class Fetched(NamedTuple):
    """What was found, and the state of the log at that moment."""

    records: FileSlice | bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] | None = None
    """For a reader of what is committed: the transactions among the records that are not."""


class LogView(NamedTuple):
    """How far a partition goes. Reading takes no lock: what a view covers does not change.

    ``stable`` is the last stable offset: the first one of a transaction that is not decided, or
    the end. ``active_size`` is how many bytes of the last segment count.
    """

    segments: list[LogSegment]
    start: int
    stable: int
    end: int
    active_size: int

    def fetch(
        self, offset: int, max_bytes: int, *, whole_first: bool, committed: bool = False
    ) -> Fetched:
        """Batches from ``offset``, which is between start and end, on; see ``LogSegment.locate``.

        ``committed``: up to the last stable offset, and which transactions were aborted.
        """
        upper = self.stable if committed else self.end
        for at in range(holder(self.segments, offset), len(self.segments)):
            segment = self.segments[at]
            if offset >= upper or segment.base_offset >= upper:
                break
            limit = self._limit(at, upper)
            records = segment.locate(offset, max_bytes, limit, whole_first=whole_first)
            if records:
                aborted = self._aborted(at, offset, records, upper) if committed else None
                return Fetched(records, self.end, self.stable, self.start, aborted)
        return Fetched(b"", self.end, self.stable, self.start, () if committed else None)

    def _limit(self, at: int, upper: int) -> int:
        """The file position in a segment up to which may be read."""
        is_last = at == len(self.segments) - 1
        if upper < self.end and (is_last or self.segments[at + 1].base_offset > upper):
            return self.segments[at].position_of(upper)
        return self.active_size if is_last else self.segments[at].size

    def _aborted(
        self, at: int, offset: int, records: FileSlice | bytes, upper: int
    ) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions from ``offset`` to about the end of what was found.

        Their index entries are in the segments of their markers, this one or a later one.
        """
        end = upper
        if isinstance(records, FileSlice):
            behind = self.segments[at].offset_index.offset_behind(records.position + len(records))
            following = self.segments[at + 1 : at + 2]
            end = min(upper, behind or (following[0].base_offset if following else upper))
        return tuple(self._aborted_between(at, offset, end))

    def _aborted_between(self, at: int, offset: int, end: int) -> Iterator[AbortedTransaction]:
        for segment in self.segments[at:]:
            for one in segment.transaction_index.between(offset, end):
                yield one
                if one.last_stable_offset >= end:
                    return

    def find_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record not older than ``timestamp`` (milliseconds); ``CorruptBatch``."""
        for segment in self.segments:
            if segment.largest_timestamp.timestamp >= timestamp:
                limit = self.active_size if segment is self.segments[-1] else segment.size
                found = segment.find_timestamp(timestamp, self.start, limit)
                if found is not None:
                    return found
        return None

    def largest_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, the first of several; None in an empty log."""
        largest = max(segment.largest_timestamp.timestamp for segment in self.segments)
        return None if largest < 0 else self.find_timestamp(largest)
