"""One segment of a partition's log: a file of batches, and its indexes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kprod.broker.log.file_records import FileRecords
from kprod.broker.log.indexes import OffsetIndex, TimeIndex, TimestampOffset, TransactionIndex
from kprod.broker.log.log_config import LogConfig
from kprod.broker.records.file_slice import FileSlice
from kprod.clock import wall_ms
from kprod.records.codecs import CorruptBatch
from kprod.records.legacy_message import StoredBatch, StoredHeader, read_sets
from kprod.types import BytesLike

_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_MOST_LOOKED_AT: Final = 100_000
_log = logging.getLogger(__name__)


class SegmentMark(NamedTuple):
    """The state of a segment before an append, to which ``undo`` returns."""

    size: int
    offset_entries: int
    time_entries: int
    largest: TimestampOffset
    since_index_entry: int
    aborted: int


class LogSegment:
    """The batches from ``base_offset`` on, in one file with its indexes (Kafka: LogSegment).

    Append, recover and close only under the partition's lock. Any thread may read at the same time.
    """

    def __init__(
        self, directory: Path, base_offset: int, config: LogConfig, suffix: str = ""
    ) -> None:
        """``suffix`` is ``.cleaned`` or ``.swap`` if the segment is to replace others."""
        name = f"{base_offset:020d}"
        self.base_offset = base_offset
        self.records = FileRecords(directory / f"{name}.log{suffix}")
        self.offset_index = OffsetIndex(directory / f"{name}.index{suffix}", base_offset)
        self.time_index = TimeIndex(directory / f"{name}.timeindex{suffix}", base_offset)
        self._indexes = (self.time_index, self.offset_index)
        self.transaction_index = TransactionIndex(directory / f"{name}.txnindex{suffix}")
        self.config = config
        self._first_timestamp: int | None = None
        self._created_ms = wall_ms()
        self._bytes_since_index_entry = 0
        self._largest = self.time_index.last if self.time_index.sane else self.time_index.none

    @property
    def size(self) -> int:
        """The size of the batches in bytes."""
        return self.records.size

    @property
    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp (-1: none), and the last offset of the batch that has it."""
        return self._largest

    def open_for_append(self) -> None:
        """Make room in the indexes, and load the index of aborted transactions."""
        for index in self._indexes:
            index.grow(self.config.segment_index_bytes)
        self.transaction_index.load()

    @property
    def modified_ms(self) -> int:
        """When the file was last written, in milliseconds since 1970."""
        return self.records.path.stat().st_mtime_ns // 1_000_000

    def has_room_for(self, header: StoredHeader) -> bool:
        """Whether a batch fits in this segment. ``header`` has its final offsets."""
        return (
            self._age(header) <= self.config.max_segment_ms
            and self.size + header.size <= self.config.segment_bytes
            and not self.offset_index.full
            and not self.time_index.full
            and header.last_offset - self.base_offset <= _MAX_RELATIVE_OFFSET
        )

    def _age(self, header: StoredHeader) -> int:
        """Return the segment's age in milliseconds when a batch is appended.

        It is computed from the timestamps of the first batch and this one. If one of them has none,
        the clock is used.
        """
        first = self.first_timestamp
        if first >= 0 and header.max_timestamp >= 0:
            return header.max_timestamp - first
        return wall_ms() - self._created_ms

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 if there is none."""
        if self._first_timestamp is None:
            first = self.records.header_at(0)
            self._first_timestamp = -1 if first is None else first.max_timestamp
        return self._first_timestamp

    def append(self, header: StoredHeader, buffers: Sequence[BytesLike]) -> None:
        """Write one batch. ``header`` has its final offsets. After an error, call ``undo``."""
        position = self.size
        self.records.append(buffers)
        self._index(header, position)

    def mark(self) -> SegmentMark:
        """Return the current state, for ``undo``."""
        return SegmentMark(
            self.size,
            self.offset_index.count,
            self.time_index.count,
            self._largest,
            self._bytes_since_index_entry,
            len(self.transaction_index.load()),
        )

    def undo(self, mark: SegmentMark) -> None:
        """Remove what was appended since ``mark`` was taken. Raises ``OSError``."""
        self.offset_index.cut(mark.offset_entries)
        self.time_index.cut(mark.time_entries)
        if len(self.transaction_index.load()) > mark.aborted:
            self.transaction_index.truncate(mark.aborted)
        self._largest, self._bytes_since_index_entry = mark.largest, mark.since_index_entry
        self.records.truncate(mark.size)

    def _index(self, header: StoredHeader, position: int) -> None:
        if header.max_timestamp > self._largest.timestamp:
            self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
        if self._bytes_since_index_entry > self.config.index_interval_bytes:
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(*self._largest)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += header.size

    def locate(
        self, offset: int, max_bytes: int, end: int, *, whole_first: bool
    ) -> FileSlice | bytes:
        """Return the batches from the one that contains ``offset``, up to file position ``end``.

        The result has at most ``max_bytes``, so its last batch may be incomplete. With
        ``whole_first``, its first batch is complete even if that takes more. The result is empty if
        no batch reaches ``offset``.
        """
        found = self._find(offset)
        if found is None or found[0] >= end:
            return b""
        position, header = found
        length = max(max_bytes, header.size) if whole_first else max_bytes
        return self.records.slice(position, min(length, end - position))

    def _find(self, offset: int) -> tuple[int, StoredHeader] | None:
        """Return position and header of the first batch that ends at or after ``offset``."""
        start = self.offset_index.lookup(offset)
        if start:
            with contextlib.suppress(CorruptBatch):
                return self._scan(start, offset)
            # A damaged index points anywhere. The file of batches is the truth.
            _log.warning("%s did not lead to offset %d", self.offset_index.path, offset)
        return self._scan(0, offset)

    def _scan(self, position: int, offset: int) -> tuple[int, StoredHeader] | None:
        """Search from ``position`` on. If that is not 0, the batch there must not be later."""
        early_enough = position == 0
        for at, header in self.records.headers(position):
            if not early_enough and header.base_offset > offset:
                break
            if header.last_offset >= offset:
                return at, header
            early_enough = True
        if not early_enough:
            raise CorruptBatch(f"no batch at {position} starts at or before offset {offset}")
        return None

    def find_timestamp(self, timestamp: int, start: int, end: int) -> TimestampOffset | None:
        """Return the first record that is not older than ``timestamp``, or None.

        Searches from offset ``start`` up to file position ``end``. Reads only batches whose header
        says that they contain such a record, so more than one is read only if a header is wrong.
        Raises ``CorruptBatch``, also if so many headers are wrong that the search would take too
        long.
        """
        looked_at = 0
        found = self._find(max(self.time_index.lookup(timestamp).offset, start))
        if found is None:
            return None
        for position, header in self.records.headers(found[0]):
            if position >= end:
                return None
            if header.max_timestamp >= timestamp:
                if looked_at > _MOST_LOOKED_AT:
                    raise CorruptBatch(f"{self.records.path}: headers have wrong times")
                for head in self.batch_at(position, header).heads():
                    looked_at += 1
                    if head.timestamp >= timestamp and head.offset >= start:
                        return TimestampOffset(head.timestamp, head.offset)
        return None

    def batch_at(self, position: int, header: StoredHeader) -> StoredBatch:
        """Return the complete batch to which a header belongs."""
        for batch in read_sets(self.records.read(position, header.size)):
            return batch
        raise CorruptBatch(f"{self.records.path}: no whole batch at position {position}")

    def headers_from(self, offset: int) -> Iterator[tuple[int, StoredHeader]]:
        """Yield position and header of the batches that end at or after ``offset``."""
        found = self._find(offset)
        if found is not None:
            yield from self.records.headers(found[0])

    def readable_headers(self, offset: int) -> Iterator[tuple[int, StoredHeader]]:
        """Yield the same as ``headers_from``, but stop at a damaged batch, with a warning."""
        try:
            yield from self.headers_from(offset)
        except CorruptBatch as error:
            _log.warning("%s; what comes after it there is not read", error)

    def position_of(self, offset: int) -> int:
        """Return the position of the first batch whose last offset is at least ``offset``.

        If there is no such batch, return the size of the segment.
        """
        found = self._find(offset)
        return self.size if found is None else found[0]

    def intact_end(self) -> int | None:
        """Return the offset after the last batch. Reads the batches from the last index entry on.

        Returns None if that entry does not fit the file, or if the last batch in the file is
        incomplete.
        """
        last_indexed = self.offset_index.last_offset
        position = self.offset_index.lookup(last_indexed)
        end_offset, end_position = self.base_offset, 0
        fits = not self.offset_index.count
        try:
            for at, header in self.records.headers(position):
                fits = fits or header.last_offset == last_indexed
                if not fits:
                    return None
                end_offset, end_position = header.last_offset + 1, at + header.size
        except CorruptBatch:
            return None
        return end_offset if fits and end_position == self.size else None

    def recover(self) -> int:
        """Keep the batches before the first incomplete or invalid one, and rebuild the indexes.

        Returns the number of bytes that were removed. The index of aborted transactions is left
        empty, because the batches of other segments are needed to rebuild it.
        """
        self._clear_indexes()
        self.transaction_index.clear()
        position, next_offset = 0, self.base_offset
        try:
            for at, header in self.records.headers():
                batch = self.batch_at(at, header)
                if not batch.crc_ok or header.base_offset < next_offset:
                    raise CorruptBatch(f"{self.records.path}: bad batch at position {at}")
                self._index(header, at)
                position, next_offset = at + header.size, header.last_offset + 1
        except CorruptBatch as error:
            _log.warning("%s; the log ends there", error)
        dropped = self.size - position
        if dropped:
            self.records.truncate(position)
        return dropped

    def rebuild_indexes(self) -> None:
        """Rebuild the indexes from the headers of the batches. Stops at a damaged batch."""
        self._clear_indexes()
        for position, header in self.readable_headers(self.base_offset):
            self._index(header, position)

    def _clear_indexes(self) -> None:
        for index in self._indexes:
            index.cut(0)
        self.open_for_append()
        self._largest = self.time_index.none
        self._bytes_since_index_entry = 0

    def seal(self) -> None:
        """End appends: add the last entry to the time index, and shrink the index files."""
        self.time_index.maybe_append(*self._largest)
        for index in self._indexes:
            index.trim()

    def flush(self) -> None:
        """Flush everything to disk."""
        self.records.flush()
        for index in self._indexes:
            index.flush()
        self.transaction_index.flush()

    def rename(self, suffix: str) -> None:
        """Give all files another ``suffix``. Raises ``OSError``."""
        for file in (*self._indexes, self.records, self.transaction_index):
            base, kind, *_ = file.path.name.split(".")
            file.rename(file.path.with_name(f"{base}.{kind}{suffix}"))

    def delete(self) -> None:
        """Close and delete the files."""
        self.close()
        for file in (self.records, *self._indexes, self.transaction_index):
            file.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files without changing them. Idempotent."""
        self.records.close()
        for index in self._indexes:
            index.close()
