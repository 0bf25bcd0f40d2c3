"""Compaction: keeps only the last record of each key."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Final

from kprod.broker.log.checkpoint_files import read_offsets, write_offsets
from kprod.broker.log.indexes import AbortedTransaction, is_aborted
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.producer_state import NO_PRODUCER
from kprod.broker.log.segment import LogSegment
from kprod.broker.records.batch_writer import rewrite_batch
from kprod.records.legacy_message import LegacyMessage, StoredBatch
from kprod.records.record_batch import RecordBatch, StoredRecord, read_batches
from kprod.types import TopicPartition

CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
HAS_DELETE_HORIZON: Final = 0x40
"""Attribute of a batch: its base timestamp is when its tombstones may be deleted (KIP-534)."""
_log = logging.getLogger(__name__)


class LogCleaner:
    """Compacts logs, and remembers up to which offset each is clean (Kafka: LogCleaner, Cleaner).

    Only one thread at a time may compact; any thread may call ``forget``. A log is compacted when a
    large enough part of it has never been cleaned (``min.cleanable.dirty.ratio``). The active
    segment is never compacted.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / CLEANER_CHECKPOINT
        self._lock = threading.Lock()  # guards the file, and changes of the offsets
        self._first_dirty = read_offsets(self._path)

    def clean_if_dirty(self, log: PartitionLog, now_ms: int) -> bool:
        """Compact a log if its policy is to compact and enough of it is dirty, or for too long.

        Returns whether the log was compacted.
        """
        config = log.config
        first_dirty = max(self._first_dirty.get(log.where, 0), log.start_offset)
        clean, dirty = _parts(log, first_dirty, now_ms)
        clean_bytes, dirty_bytes = (
            sum(segment.size for segment in part) for part in (clean, dirty)
        )
        if not config.compacts or not dirty_bytes:
            return False
        is_old = now_ms - dirty[0].first_timestamp > config.max_compaction_lag_ms
        ratio = dirty_bytes / (dirty_bytes + clean_bytes)
        if ratio < config.min_cleanable_dirty_ratio and not is_old:
            return False
        self.clean(log, now_ms, first_dirty=first_dirty)
        return True

    def clean(self, log: PartitionLog, now_ms: int, *, first_dirty: int = 0) -> None:
        """Compact all segments that can be compacted. Raises ``OSError`` and ``CorruptBatch``.

        The active segment cannot be compacted, nor can segments with an open transaction, which may
        still be aborted.
        """
        clean, dirty = _parts(log, first_dirty, now_ms)
        segments = clean + dirty
        if not segments:
            return
        # The marker of an aborted transaction may be in a segment that stays.
        aborted = [one for segment in log.segments for one in segment.transaction_index.load()]
        latest = _latest_offsets(dirty, aborted)
        cleaning = _Cleaning(log, latest, aborted, now_ms)
        end = segments[-1].base_offset
        for _, header in segments[-1].records.headers():
            end = header.last_offset + 1
        for group in reversed(list(_groups(segments, log.config))):
            cleaning.rewrite(group)
        with self._lock:
            self._first_dirty[log.where] = end
            write_offsets(self._path, self._first_dirty)

    def forget(self, *deleted: TopicPartition) -> None:
        """Forget partitions that were deleted."""
        with self._lock:
            if [where for where in deleted if self._first_dirty.pop(where, None) is not None]:
                write_offsets(self._path, self._first_dirty)

    def forget_cut(self, ends: Mapping[TopicPartition, int]) -> None:
        """Treat a log as dirty if recovery has cut off part of what was clean.

        New records get the offsets of that part, and these records are not clean. ``ends`` has the
        end offset of each log.
        """
        dirty = self._first_dirty
        self.forget(*[where for where, end in ends.items() if end < dirty.get(where, 0)])


def _parts(
    log: PartitionLog, first_dirty: int, now_ms: int
) -> tuple[list[LogSegment], list[LogSegment]]:
    """Return the segments that were cleaned before, and those that can be cleaned now.

    Neither list contains the active segment or segments with batches of an open transaction. The
    records in the second list are all older than ``min.compaction.lag.ms``.
    """
    segments, stable = log.segments, log.last_stable_offset
    decided = [one for one, following in pairwise(segments) if following.base_offset <= stable]
    dirty = takewhile(
        lambda s: now_ms - s.largest_timestamp.timestamp >= log.config.min_compaction_lag_ms,
        (segment for segment in decided if segment.base_offset >= first_dirty),
    )
    return [segment for segment in decided if segment.base_offset < first_dirty], list(dirty)


def _groups(segments: Sequence[LogSegment], config: LogConfig) -> Iterator[list[LogSegment]]:
    """Yield groups of neighbouring segments that fit into one segment even before compaction."""
    group: list[LogSegment] = []
    size = 0
    for segment in segments:
        spans = group and segment.base_offset - group[0].base_offset > 2**30
        if group and (size + segment.size > config.segment_bytes or spans):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group


def _latest_offsets(
    segments: Sequence[LogSegment], aborted: Sequence[AbortedTransaction]
) -> dict[bytes, int]:
    """Return the offset of the last record with each key (Kafka: OffsetMap)."""
    latest: dict[bytes, int] = {}
    for batch in _batches(segments):
        if not batch.is_control and not is_aborted(batch, aborted):
            for record in batch.records():
                if record.key is not None:
                    latest[record.key] = record.offset
    return latest


def _batches(segments: Sequence[LogSegment]) -> Iterator[StoredBatch]:
    for segment in segments:
        for position, header in segment.records.headers():
            yield segment.batch_at(position, header)


class _Cleaning:
    """The compaction of one log."""

    def __init__(
        self,
        log: PartitionLog,
        latest: dict[bytes, int],
        aborted: Sequence[AbortedTransaction],
        now_ms: int,
    ) -> None:
        self._log = log
        self._latest = latest
        self._aborted = aborted
        self._now_ms = now_ms
        # A batch that holds a producer's last sequence stays, if need be without records.
        self._last_of_producer = {
            entry.batches[-1].last_offset for _, entry in log.producers() if entry.batches
        }

    def rewrite(self, group: list[LogSegment]) -> None:
        """Replace neighbouring segments by one segment with the records to keep."""
        directory, base = self._log.directory, group[0].base_offset
        for leftover in directory.glob(f"{base:020d}.*.cleaned"):
            leftover.unlink()
        fresh = LogSegment(directory, base, self._log.config, ".cleaned")
        try:
            fresh.open_for_append()
            self._copy(group, fresh)
            for segment in group:
                for one in segment.transaction_index.load():
                    fresh.transaction_index.append(one)
            fresh.seal()
            fresh.flush()
        except BaseException:
            fresh.delete()
            raise
        self._log.replace_segments(group, fresh, self._now_ms)

    def _copy(self, segments: Sequence[LogSegment], fresh: LogSegment) -> None:
        for batch in _batches(segments):
            kept = self._kept(batch)
            if kept is not None:
                fresh.append(kept, [kept.data])

    def _kept(self, batch: StoredBatch) -> StoredBatch | None:
        """Return what compaction keeps of a batch; None if it drops the whole batch."""
        if batch.is_control:
            return batch
        if isinstance(batch, LegacyMessage):
            records = list(batch.records())
        else:
            records = list(batch.records(names="surrogateescape"))  # as ``rewrite_batch`` takes it
        if is_aborted(batch, self._aborted):
            kept, horizon = [], None
        else:
            horizon = self._horizon(batch, records)
            kept = [record for record in records if self._stays(record, horizon)]
        stamped = horizon is not None and not batch.attributes & HAS_DELETE_HORIZON
        if kept and len(kept) == len(records) and not stamped:
            return batch
        if not kept and (
            batch.producer_id == NO_PRODUCER or batch.last_offset not in self._last_of_producer
        ):
            return None
        header = batch.header_as_v2(kept) if isinstance(batch, LegacyMessage) else batch
        attributes = header.attributes
        if stamped and horizon is not None:
            attributes |= HAS_DELETE_HORIZON
            header = replace(header, base_timestamp=horizon)
        return next(read_batches(rewrite_batch(header, kept, attributes)))

    def _horizon(self, batch: StoredBatch, records: list[StoredRecord]) -> int | None:
        """Return when the tombstones of a batch may be deleted; None if the batch has none.

        That is ``delete.retention.ms`` after the tombstones were first cleaned.
        """
        if isinstance(batch, RecordBatch) and batch.attributes & HAS_DELETE_HORIZON:
            return batch.base_timestamp
        if any(record.value is None and self._is_latest(record) for record in records):
            return self._now_ms + self._log.config.delete_retention_ms
        return None

    def _is_latest(self, record: StoredRecord) -> bool:
        return record.key is not None and record.offset >= self._latest.get(record.key, -1)

    def _stays(self, record: StoredRecord, horizon: int | None) -> bool:
        if not self._is_latest(record):
            return False
        return record.value is not None or horizon is None or horizon > self._now_ms
