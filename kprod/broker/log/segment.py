"""One segment of a partition's log: a file of batches and its two indexes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kprod.broker.batch_header import BatchHeader
from kprod.broker.corrupt_batch import CorruptBatch
from kprod.broker.log.file_records import FileRecords
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.offset_index import OffsetIndex
from kprod.broker.log.time_index import TimeIndex, TimestampOffset
from kprod.broker.record_batch import RecordBatch, read_batches
from kprod.types import BytesLike

_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_log = logging.getLogger(__name__)


class LogSegment:
    """Batches from ``base_offset`` on (Kafka: LogSegment).

    Appending, recovering and closing happen under the partition's lock; reading may go on at the
    same time from any thread.
    """

    def __init__(self, directory: Path, base_offset: int, config: LogConfig) -> None:
        name = f"{base_offset:020d}"
        self.base_offset = base_offset
        self.records = FileRecords(directory / f"{name}.log")
        self.offset_index = OffsetIndex(directory / f"{name}.index", base_offset)
        self.time_index = TimeIndex(directory / f"{name}.timeindex", base_offset)
        self._config = config
        self._bytes_since_index_entry = 0
        self._largest = self.time_index.last if self.time_index.sane else self._no_timestamp

    @property
    def _no_timestamp(self) -> TimestampOffset:
        return TimestampOffset(-1, self.base_offset)

    @property
    def size(self) -> int:
        """Bytes of the batches."""
        return self.records.size

    @property
    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the batch that has it; -1 for none."""
        return self._largest

    def open_for_append(self) -> None:
        """Give the indexes room."""
        self.offset_index.entries.grow(self._config.segment_index_bytes)
        self.time_index.entries.grow(self._config.segment_index_bytes)

    def has_room_for(self, header: BatchHeader) -> bool:
        """Whether a batch, whose offsets are final, still belongs into this segment."""
        return (
            self.size + header.size <= self._config.segment_bytes
            and not self.offset_index.full
            and not self.time_index.full
            and header.last_offset - self.base_offset <= _MAX_RELATIVE_OFFSET
        )

    def append(self, header: BatchHeader, buffers: Sequence[BytesLike]) -> None:
        """Write one batch, whose ``header`` has its final offsets; ``OSError`` leaves no trace."""
        position, largest = self.size, self._largest
        entries = self.offset_index.entries.count, self.time_index.entries.count
        self.records.append(buffers)
        try:
            self._index(header, position)
        except OSError:
            self.records.truncate(position)
            self.offset_index.entries.cut(entries[0])
            self.time_index.entries.cut(entries[1])
            self._largest = largest
            raise

    def _index(self, header: BatchHeader, position: int) -> None:
        if header.max_timestamp > self._largest.timestamp:
            self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
        if self._bytes_since_index_entry > self._config.index_interval_bytes:
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(*self._largest)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += header.size

    def read(self, offset: int, max_bytes: int, end: int, *, whole_first: bool) -> bytes:
        """Batches from the one that holds ``offset`` on, at most to file position ``end``.

        At most ``max_bytes``, so that the last batch may be cut off; but all of the first batch
        when ``whole_first``. Empty when no batch reaches ``offset``.
        """
        found = self._find(offset)
        if found is None or found[0] >= end:
            return b""
        position, header = found
        length = max(max_bytes, header.size) if whole_first else max_bytes
        return self.records.read(position, max(0, min(length, end - position)))

    def _find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch that ends at or after ``offset``."""
        start = self.offset_index.lookup(offset)
        if start:
            with contextlib.suppress(CorruptBatch):
                found = self._scan(start, offset)
                if found is not None:
                    return found
            # A damaged index points anywhere. The file of batches is the truth.
            _log.warning("%s did not lead to offset %d", self.offset_index.entries.path, offset)
        return self._scan(0, offset)

    def _scan(self, position: int, offset: int) -> tuple[int, BatchHeader] | None:
        for at, header in self.records.headers(position):
            if header.last_offset >= offset:
                if at == position and at > 0 and header.base_offset > offset:
                    raise CorruptBatch(f"the batch at {at} starts after offset {offset}")
                return at, header
        return None

    def find_timestamp(self, timestamp: int, start: int, end: int) -> TimestampOffset | None:
        """The first record from offset ``start`` to file position ``end`` not before ``timestamp``.

        Opens the batches it must look into. Raises ``CorruptBatch``.
        """
        found = self._find(max(self.time_index.lookup(timestamp).offset, start))
        if found is None:
            return None
        for position, header in self.records.headers(found[0]):
            if position >= end:
                return None
            if header.max_timestamp >= timestamp:
                for record in self.batch_at(position, header).records():
                    if record.timestamp >= timestamp and record.offset >= start:
                        return TimestampOffset(record.timestamp, record.offset)
        return None

    def batch_at(self, position: int, header: BatchHeader) -> RecordBatch:
        """The whole batch behind a header."""
        for batch in read_batches(self.records.read(position, header.size)):
            return batch
        raise CorruptBatch(f"{self.records.path}: no whole batch at position {position}")

    def headers_from(self, offset: int) -> Iterator[BatchHeader]:
        """The headers of the batches that end at or after ``offset``."""
        found = self._find(offset)
        if found is not None:
            for _, header in self.records.headers(found[0]):
                yield header

    def intact_end(self) -> int | None:
        """The offset after the last batch, found from the last index entry on.

        None when that entry does not fit the file, or the file does not end with a whole batch.
        """
        last_indexed = self.offset_index.last_offset
        position = self.offset_index.lookup(last_indexed)
        end_offset, end_position = self.base_offset, 0
        try:
            for at, header in self.records.headers(position):
                if at == position > 0 and header.last_offset != last_indexed:
                    return None
                end_offset, end_position = header.last_offset + 1, at + header.size
        except CorruptBatch:
            return None
        return end_offset if end_position == self.size else None

    def recover(self) -> int:
        """Keep the batches up to the first that is not whole and valid, index them anew.

        Returns the number of bytes dropped behind them.
        """
        self._clear_indexes()
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
        """Index the batches anew from their headers."""
        self._clear_indexes()
        for position, header in self.records.headers():
            self._index(header, position)

    def _clear_indexes(self) -> None:
        self.offset_index.entries.cut(0)
        self.time_index.entries.cut(0)
        self.open_for_append()
        self._largest = self._no_timestamp
        self._bytes_since_index_entry = 0

    def seal(self) -> None:
        """No more appends: the time index gets its last entry, both shrink to their entries."""
        self.time_index.maybe_append(*self._largest)
        self.offset_index.entries.trim()
        self.time_index.entries.trim()

    def flush(self) -> None:
        """Force everything to the disk."""
        self.records.flush()
        self.offset_index.entries.flush()
        self.time_index.entries.flush()

    def close(self) -> None:
        """Let go of the files as they are. Idempotent."""
        self.records.close()
        self.offset_index.entries.close()
        self.time_index.entries.close()
