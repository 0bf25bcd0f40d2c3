"""The segments of a partition: rolling, flushing, expiry, replacement, and a view for readers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from kprod.broker.log.checkpoint_files import flush_directory
from kprod.broker.log.indexes import AbortedTransaction, TimestampOffset
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.producer_snapshot import drop_snapshots_before
from kprod.broker.log.segment import LogSegment
from kprod.broker.records.file_slice import FileSlice
from kprod.records.legacy_message import StoredHeader


def holder(segments: Sequence[LogSegment], offset: int) -> int:
    """Return the index of the segment that contains an offset."""
    return max(bisect_right(segments, offset, key=lambda s: s.base_offset) - 1, 0)


_NO_LIMIT: Final = -1


def expired_segments(
    segments: Sequence[LogSegment],
    config: LogConfig,
    start_offset: int,
    stable_offset: int,
    end_offset: int,
    now_ms: int,
) -> int:
    """Return how many of the oldest segments must be deleted (Kafka: UnifiedLog.deleteOldSegments).

    Segments before the start of the log are always deleted. If the cleanup policy is to delete,
    other segments are deleted because of their age or the size of the log. For the active segment,
    only the age counts. Segments that reach beyond the last stable offset are always kept.
    """
    count = 0
    size = sum(segment.size for segment in segments)
    for number, segment in enumerate(segments):
        following = segments[number + 1 : number + 2]
        if not segment.size and not following:
            break
        if stable_offset < (following[0].base_offset if following else end_offset):
            break
        before_start = bool(following) and following[0].base_offset <= start_offset
        too_large = (
            config.deletes
            and config.retention_bytes != _NO_LIMIT
            and bool(following)
            and size - segment.size >= config.retention_bytes
        )
        if not (before_start or too_large or _too_old(segment, config, now_ms)):
            break
        size -= segment.size
        count += 1
    return count


def _too_old(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    if not config.deletes or config.retention_ms == _NO_LIMIT:
        return False
    latest = segment.largest_timestamp.timestamp
    if latest < 0:
        latest = segment.modified_ms
    return now_ms - latest > config.retention_ms


class LocalLog:
    """The files of a partition. Knows nothing of producers, leaders and transactions.

    All methods are called under the partition's lock. The list ``segments`` is replaced, never
    changed, so readers can keep using the list that they have. ``recovery_point`` is the offset up
    to which everything was flushed to disk. Any method may raise ``OSError``.
    """

    def __init__(
        self, directory: Path, config: LogConfig, segments: list[LogSegment], end_offset: int
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments = segments
        self.recovery_point = end_offset
        self._unflushed_messages = 0
        self._flushed_ms = 0
        # Files that wait for ``file.delete.delay.ms``, with the time: readers may use them.
        self._doomed: list[tuple[int, LogSegment]] = []

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings of the topic."""
        self.config = config
        for segment in self.segments:
            segment.config = config

    @property
    def active(self) -> LogSegment:
        """The segment to which batches are appended."""
        return self.segments[-1]

    def has_room_for(self, header: StoredHeader) -> bool:
        """Whether a batch fits in the active segment. ``header`` has its final offsets."""
        return self.active.size == 0 or self.active.has_room_for(header)

    def roll(self, base_offset: int) -> None:
        """Seal the active segment, and begin the next one at ``base_offset``."""
        self.active.seal()
        fresh = LogSegment(self.directory, base_offset, self.config)
        fresh.open_for_append()
        if self.config.flush_messages is not None:
            # ``flush_if_due`` flushes only the batches of the active segment.
            self.active.records.flush()
            flush_directory(self.directory)
        self.segments = [*self.segments, fresh]

    def flush_if_due(self, appended: int) -> None:
        """Flush the batches if ``flush.messages`` records were appended since the last flush."""
        if self.config.flush_messages is not None:
            self._unflushed_messages += appended
            if self._unflushed_messages >= self.config.flush_messages:
                self.active.records.flush()
                self._unflushed_messages = 0

    def flush_if_older(self, end_offset: int, now_ms: int) -> None:
        """Flush everything to disk if ``flush.ms`` have passed since the last such flush."""
        due = self.config.flush_ms is not None and self.recovery_point < end_offset
        if due and now_ms - self._flushed_ms >= (self.config.flush_ms or 0):
            self.flush(end_offset)
            self._flushed_ms = now_ms

    def flush(self, end_offset: int) -> None:
        """Flush everything up to ``end_offset``, the end of the log, to disk."""
        if self.recovery_point == end_offset:
            return
        for segment in self.segments[holder(self.segments, self.recovery_point) :]:
            segment.flush()
        self.recovery_point = end_offset

    def rolled_since_flush(self) -> list[LogSegment]:
        """Return the inactive segments that may not have been flushed to disk yet."""
        return self.segments[holder(self.segments, self.recovery_point) : -1]

    def delete_first(self, count: int, now_ms: int) -> None:
        """Delete the ``count`` oldest segments. At least one segment must be left."""
        doomed, self.segments = self.segments[:count], self.segments[count:]
        self._doom(doomed, now_ms)
        drop_snapshots_before(self.directory, self.segments[0].base_offset)

    def replace(self, old: list[LogSegment], fresh: LogSegment, now_ms: int) -> None:
        """Replace the ``old`` segments by ``fresh``, whose files have the suffix ``.swap``."""
        self._doom(old, now_ms)
        fresh.rename("")
        flush_directory(self.directory)
        kept = [segment for segment in self.segments if segment not in old]
        self.segments = sorted([*kept, fresh], key=lambda s: s.base_offset)

    def _doom(self, segments: list[LogSegment], now_ms: int) -> None:
        """Give the segments' files the suffix ``.deleted``. The files are deleted later."""
        # Oldest first: after a crash in the middle the rest has no gap.
        for segment in segments:
            segment.rename(".deleted")
            self._doomed.append((now_ms + self.config.file_delete_delay_ms, segment))

    def take_deleted(self, now_ms: int) -> list[LogSegment]:
        """Remove and return the segments whose ``.deleted`` files can now be deleted."""
        due = [segment for when, segment in self._doomed if when <= now_ms]
        self._doomed = [(when, segment) for when, segment in self._doomed if when > now_ms]
        return due

    def let_go(self) -> None:
        """Close all files without changing them. Idempotent."""
        for segment in (*self.segments, *(doomed for _, doomed in self._doomed)):
            segment.close()


OnFailure: TypeAlias = Callable[[OSError], None]
"""Called, without a lock held, when the disk has failed."""


def ignore_failure(_: OSError) -> None:
    """Do nothing. For logs that do not belong to a ``LogDirectory``."""


class Appended(NamedTuple):
    """Where a batch is stored.

    ``log_append_time`` is -1 unless the batch is a duplicate, as in Kafka.
    """

    base_offset: int
    log_append_time: int
    log_start_offset: int


class Fetched(NamedTuple):
    """The records that a read has found, and the state of the log at that moment."""

    records: FileSlice | bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] | None = None
    """For readers of committed records: the aborted transactions among the records."""


class LogView(NamedTuple):
    """What can be read of a partition at one moment. Immutable, so reads need no lock.

    ``stable`` is the last stable offset, which is the first offset of an open transaction, or else
    the end of the log. ``active_size`` is how many bytes of the last segment belong to the view.
    """

    segments: list[LogSegment]
    start: int
    stable: int
    end: int
    active_size: int

    def fetch(
        self, offset: int, max_bytes: int, *, whole_first: bool, committed: bool = False
    ) -> Fetched:
        """Return the batches from ``offset`` on, as ``LogSegment.locate`` finds them.

        ``offset`` must be in the log. With ``committed``, the batches end at the last stable
        offset, and the result names the aborted transactions among them.
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
        """Return the file position at which reads of a segment must end."""
        is_last = at == len(self.segments) - 1
        if upper < self.end and (is_last or self.segments[at + 1].base_offset > upper):
            return self.segments[at].position_of(upper)
        return self.active_size if is_last else self.segments[at].size

    def _aborted(
        self, at: int, offset: int, records: FileSlice | bytes, upper: int
    ) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions from ``offset`` to about the end of the ``records``.

        The index entry of a transaction is in the segment with its marker, which may be a later
        segment.
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
        """Return the first record that is not older than ``timestamp`` (milliseconds), or None.

        Raises ``CorruptBatch``.
        """
        for segment in self.segments:
            if segment.largest_timestamp.timestamp >= timestamp:
                limit = self.active_size if segment is self.segments[-1] else segment.size
                found = segment.find_timestamp(timestamp, self.start, limit)
                if found is not None:
                    return found
        return None

    def largest_timestamp(self) -> TimestampOffset | None:
        """Return the first record that has the largest timestamp; None if no record has one."""
        largest = max(segment.largest_timestamp.timestamp for segment in self.segments)
        return None if largest < 0 else self.find_timestamp(largest)
