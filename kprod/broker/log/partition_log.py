"""The log of one partition: segments, offsets, and what it knows of its producers."""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.batch_header import BatchHeader
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.producer_snapshot import snapshot_offsets, write_snapshot
from kprod.broker.log.segment import LogSegment
from kprod.broker.log.time_index import TimestampOffset
from kprod.broker.producer_state import NO_PRODUCER, ProducerState
from kprod.errors import BrokerError
from kprod.types import BytesLike, TopicPartition

LEADER_EPOCH: Final = 0
"""There is one node, so there was never another leader."""

_STAMP: Final = struct.Struct(">qii")


class Appended(NamedTuple):
    """Where a batch is. ``log_append_time`` is -1 except for a duplicate, as Kafka answers it."""

    base_offset: int
    log_append_time: int
    log_start_offset: int


class Fetched(NamedTuple):
    """What a read found, and the state of the log at that moment."""

    records: bytes
    high_watermark: int
    log_start_offset: int


class PartitionLog:
    """Kafka's UnifiedLog for a single node: every appended record is visible at once.

    Thread-safe. One lock orders the appends; reads only take it to learn how far the log goes.
    """

    def __init__(
        self,
        where: TopicPartition,
        directory: Path,
        config: LogConfig,
        segments: list[LogSegment],
        producers: ProducerState,
        *,
        start_offset: int,
        end_offset: int,
    ) -> None:
        self.where = where
        self.directory = directory
        self._config = config
        self._lock = threading.Lock()  # guards the rest
        self._segments = segments
        self._producers = producers
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._recovery_point = end_offset
        self._unflushed_messages = 0
        self._open = True

    @property
    def start_offset(self) -> int:
        """The first offset there is."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset the next record gets; also the high watermark."""
        return self._end_offset

    @property
    def recovery_point(self) -> int:
        """The offset up to which everything was forced to the disk."""
        return self._recovery_point

    def append(self, header: BatchHeader, data: BytesLike) -> Appended:
        """Store one validated batch, give it its offsets, or recognise it as stored already.

        Raises ``BrokerError``: 45 and 47 by the rules of ``ProducerState``, 18 for a batch larger
        than a segment, 56 when the disk fails (nothing is stored then).
        """
        with self._lock:
            if header.producer_id != NO_PRODUCER:
                known = self._producers.duplicate_of(header)
                if known is not None:
                    return Appended(known.first_offset, known.timestamp, self._start_offset)
                self._producers.check(header)
            placed = replace(
                header, base_offset=self._end_offset, partition_leader_epoch=LEADER_EPOCH
            )
            self._write(placed, data)
            if header.producer_id != NO_PRODUCER:
                self._producers.update(placed)
            self._end_offset = placed.last_offset + 1
            return Appended(placed.base_offset, -1, self._start_offset)

    def _write(self, header: BatchHeader, data: BytesLike) -> None:
        stamp = _STAMP.pack(header.base_offset, header.batch_length, header.partition_leader_epoch)
        if header.size > self._config.segment_bytes:
            raise BrokerError(ErrorCode.record_list_too_large, "larger than a segment")
        try:
            if not self._open:
                raise OSError("the log is closed")
            self._segment_for(header).append(header, [stamp, memoryview(data)[len(stamp) :]])
            self._flush_if_due(header.record_count)
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error

    def _segment_for(self, header: BatchHeader) -> LogSegment:
        active = self._segments[-1]
        if active.size == 0 or active.has_room_for(header):
            return active
        return self._roll(header.base_offset)

    def _roll(self, base_offset: int) -> LogSegment:
        self._segments[-1].seal()
        write_snapshot(self.directory, base_offset, self._producers)
        fresh = LogSegment(self.directory, base_offset, self._config)
        fresh.open_for_append()
        # Readers hold the old list; they see the new segment with their next request.
        self._segments = [*self._segments, fresh]
        return fresh

    def _flush_if_due(self, appended: int) -> None:
        if self._config.flush_messages is not None:
            self._unflushed_messages += appended
            if self._unflushed_messages >= self._config.flush_messages:
                self._segments[-1].records.flush()
                self._unflushed_messages = 0

    def read(self, offset: int, max_bytes: int, *, whole_first: bool) -> Fetched:
        """Batches from ``offset`` on, at most ``max_bytes`` (see ``LogSegment.read``).

        Empty at the end of the log. Raises ``BrokerError`` 1 for an offset outside of it.
        """
        with self._lock:
            segments, start, end = self._segments, self._start_offset, self._end_offset
            active_size = segments[-1].size
        if not start <= offset <= end:
            raise BrokerError(ErrorCode.offset_out_of_range, f"{offset} is not in {start}..{end}")
        if offset == end:
            return Fetched(b"", end, start)
        for segment in segments[_holder(segments, offset) :]:
            limit = active_size if segment is segments[-1] else segment.size
            records = segment.read(offset, max_bytes, limit, whole_first=whole_first)
            if records:
                return Fetched(records, end, start)
        return Fetched(b"", end, start)

    def find_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record not older than ``timestamp`` (milliseconds), if there is one.

        Raises ``CorruptBatch`` when a batch that must be opened is not readable.
        """
        with self._lock:
            segments, start = self._segments, self._start_offset
            active_size = segments[-1].size
        for segment in segments:
            if segment.largest_timestamp.timestamp >= timestamp:
                limit = active_size if segment is segments[-1] else segment.size
                found = segment.find_timestamp(timestamp, start, limit)
                if found is not None:
                    return found
        return None

    def largest_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, the first of several; None in an empty log."""
        with self._lock:
            largest = max(s.largest_timestamp.timestamp for s in self._segments)
        return None if largest < 0 else self.find_timestamp(largest)

    def flush(self) -> None:
        """Force everything to the disk. Raises ``OSError``."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._recovery_point == self._end_offset:
            return
        for segment in self._segments[_holder(self._segments, self._recovery_point) :]:
            segment.flush()
        self._recovery_point = self._end_offset

    def close(self) -> None:
        """Seal, flush and snapshot, so that the next start need not recover. Raises ``OSError``."""
        with self._lock:
            if self._open:
                self._open = False
                self._segments[-1].seal()
                self._flush()
                if self._end_offset not in (0, *snapshot_offsets(self.directory)):
                    write_snapshot(self.directory, self._end_offset, self._producers)
                self._let_go()

    def abandon(self) -> None:
        """Let go of the files as a crash would: nothing is sealed, flushed or written."""
        with self._lock:
            self._open = False
            self._let_go()

    def _let_go(self) -> None:
        for segment in self._segments:
            segment.close()


def _holder(segments: list[LogSegment], offset: int) -> int:
    """Where in the list the segment of an offset is."""
    return max(bisect_right(segments, offset, key=lambda s: s.base_offset) - 1, 0)
