"""The log of one partition: segments, offsets, and the state of its producers."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from kio.schema.errors import ErrorCode

from kprod.broker.log.indexes import is_aborted
from kprod.broker.log.leader_epochs import LeaderEpochs
from kprod.broker.log.local_log import (
    Appended,
    Fetched,
    LocalLog,
    LogView,
    OnFailure,
    expired_segments,
    ignore_failure,
)
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.producer_snapshot import snapshot_offsets, write_snapshot
from kprod.broker.log.producer_state import (
    NO_PRODUCER,
    ProducerEntry,
    ProducerState,
    VerificationGuard,
)
from kprod.broker.log.segment import LogSegment
from kprod.broker.records.batch_writer import TransactionMarker, write_marker
from kprod.broker.records.file_slice import in_memory
from kprod.errors import BrokerError
from kprod.records.legacy_message import StoredBatch, read_sets
from kprod.records.record_batch import BatchHeader, StoredRecord
from kprod.types import BytesLike, TopicPartition

_READ_BYTES: Final = 1024 * 1024
_STAMP: Final = struct.Struct(">qii")


class PartitionLog:
    """The log of one partition (Kafka: UnifiedLog). Appended records can be read immediately.

    Thread-safe. One lock orders the appends; reads take it only to get the current extent of the
    log.
    """

    def __init__(
        self,
        where: TopicPartition,
        directory: Path,
        config: LogConfig,
        segments: list[LogSegment],
        producers: ProducerState,
        epochs: LeaderEpochs,
        *,
        start_offset: int,
        end_offset: int,
        on_failure: OnFailure = ignore_failure,
    ) -> None:
        self.where = where
        self.directory = directory
        self._lock = threading.Lock()  # guards the rest
        self._files = LocalLog(directory, config, segments, end_offset)
        self._producers = producers
        self._epochs = epochs
        self.start_offset = start_offset  # the first offset; changed here only
        self.end_offset = end_offset  # of the next record; also the high watermark
        self._open = True
        self._failure: OSError | None = None
        self._on_failure = on_failure
        self._offline: OSError | None = None

    @classmethod
    def lost(cls, where: TopicPartition, path: Path, config: LogConfig, error: OSError) -> Self:
        """Make a placeholder for a partition in a directory that could not be opened."""
        epochs = LeaderEpochs(None)
        log = cls(where, path, config, [], ProducerState(), epochs, start_offset=0, end_offset=0)
        log.go_offline(error)
        return log

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which all transactions have ended."""
        with self._lock:
            return self._stable_offset()

    def _stable_offset(self) -> int:
        return max(self._producers.first_open(self.end_offset), self.start_offset)

    @property
    def recovery_point(self) -> int:
        """The offset up to which everything was flushed to disk."""
        return self._files.recovery_point

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch, which grows with each new leader."""
        return self._epochs.latest

    def begin_epoch(self) -> None:
        """Begin a new leader epoch. Raises ``OSError`` if the epoch cannot be written."""
        with self._lock:
            if self._offline is None:
                self._epochs.begin(self._epochs.latest + 1, self.end_offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the latest leader epoch up to ``epoch``, and its end offset.

        Returns (-1, -1) if it is unknown (see ``LeaderEpochs.end_of``).
        """
        with self._lock:
            return self._epochs.end_of(epoch, self.end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written; -1 if it is unknown."""
        with self._lock:
            return self._epochs.epoch_at(offset)

    def verification(self, producer_id: int, epoch: int, now_ms: int) -> VerificationGuard | None:
        """See ``ProducerState.verification``."""
        with self._lock:
            return self._producers.verification(producer_id, epoch, now_ms)

    def append(
        self,
        header: BatchHeader,
        data: BytesLike,
        guard: VerificationGuard | None = None,
        *,
        from_zero: bool = False,
    ) -> Appended:
        """Store one validated batch and assign its offsets. A duplicate is not stored again.

        The first batch of a transaction needs a ``guard`` (see ``verification``). With
        ``from_zero``, the sequence numbers of an unknown producer must begin at 0.

        If this raises ``BrokerError``, nothing is stored. The codes are 45 (wrong sequence number),
        47 (old producer epoch), 48 (no open transaction, or a batch outside of it), 18 (the batch
        is larger than a segment) and 56 (disk failure).
        """
        try:
            with self._lock:
                self._check_usable()
                if header.producer_id != NO_PRODUCER:
                    known = self._producers.duplicate_of(header)
                    if known is not None:
                        return Appended(known.first_offset, known.timestamp, self.start_offset)
                    self._producers.check(header, guard, from_zero=from_zero)
                return self._store(header, data)
        except OSError as error:
            raise self._disk_failed(error) from error

    def _disk_failed(self, error: OSError) -> BrokerError:
        self._on_failure(error)
        return BrokerError(ErrorCode.kafka_storage_error, str(error))

    def end_transaction(
        self, marker: TransactionMarker, now_ms: int, *, transaction_version: int = 0
    ) -> Appended:
        """Append the marker that ends a producer's transaction.

        Raises ``BrokerError`` 47 (old producer epoch), 52 (old coordinator epoch) or 56 (disk
        failure).
        """
        batch = write_marker(marker, now_ms)
        try:
            with self._lock:
                self._check_usable()
                self._producers.check_marker(marker, transaction_version)
                return self._store(BatchHeader.parse(batch), batch, marker)
        except OSError as error:
            raise self._disk_failed(error) from error

    def _store(
        self, header: BatchHeader, data: BytesLike, marker: TransactionMarker | None = None
    ) -> Appended:
        placed = replace(
            header, base_offset=self.end_offset, partition_leader_epoch=self._epochs.latest
        )
        answer = Appended(placed.base_offset, -1, self.start_offset)
        self._write(placed, data, marker)
        self.end_offset = placed.last_offset + 1
        return answer

    def _check_usable(self) -> None:
        why = self._offline or self._failure or (None if self._open else "the log is closed")
        if why is not None:
            raise BrokerError(ErrorCode.kafka_storage_error, f"{self.where}: {why}")

    @property
    def offline(self) -> bool:
        """Whether the disk has failed, so that the log is unusable until the next start."""
        return self._offline is not None

    def go_offline(self, error: OSError) -> None:
        """Close the log, because the disk has failed. Idempotent."""
        with self._lock:
            self._offline = self._offline or error
            self._open = False
            self._files.let_go()

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings of the topic."""
        with self._lock:
            self._files.reconfigure(config)

    @property
    def config(self) -> LogConfig:
        """The settings of the topic."""
        return self._files.config

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The current segments. Appends go to the last one."""
        return tuple(self._files.segments)

    def producers(self) -> list[tuple[int, ProducerEntry]]:
        """Return the remembered producers, with their ids."""
        with self._lock:
            return list(self._producers)

    def fail_with(self, error: OSError | None) -> None:
        """Let appends fail with this error, as if the disk had failed; None ends the failure."""
        with self._lock:
            self._failure = error

    def expire_producers(self, oldest_ms: int) -> None:
        """Forget producers that have written nothing since ``oldest_ms``.

        Producers with an open transaction are kept.
        """
        with self._lock:
            self._producers.expire(oldest_ms)

    def delete_records(self, before: int) -> int:
        """Delete the records before an offset (-1: all records); return the new start of the log.

        Files are deleted later. Raises ``BrokerError`` 1 for an offset after the end of the log,
        and 56 if the disk fails.
        """
        try:
            with self._lock:
                offset = self.end_offset if before == -1 else before
                if not 0 <= offset <= self.end_offset:
                    raise _out_of_range(offset, 0, self.end_offset)
                self._begin_at(max(offset, self.start_offset))
                return self.start_offset
        except OSError as error:
            raise self._disk_failed(error) from error

    def _begin_at(self, offset: int) -> None:
        self.start_offset = offset
        self._epochs.drop_before(offset)

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete the segments that retention no longer covers; return their number.

        Segments with open transactions are kept. Raises ``OSError``.
        """
        with self._lock:
            segments = self._files.segments
            ends = (self.start_offset, self._stable_offset(), self.end_offset)
            count = expired_segments(segments, self.config, *ends, now_ms)
            if not count or not self._open:
                return 0
            if count == len(segments):
                self._roll(self.end_offset)
            self._files.delete_first(count, now_ms)
            self._begin_at(max(self.start_offset, self._files.segments[0].base_offset))
            return count

    def replace_segments(self, old: list[LogSegment], fresh: LogSegment, now_ms: int) -> None:
        """Replace segments by a compacted one, whose files have the suffix ``.cleaned``.

        If the log is closed, ``fresh`` is deleted instead.

        After a crash at any step, recovery can continue: it ignores ``.cleaned`` files, replaces
        the segments that a ``.swap`` file covers, and removes ``.deleted`` files. Raises
        ``OSError``.
        """
        with self._lock:
            if self._open:
                fresh.rename(".swap")
                self._files.replace(old, fresh, now_ms)
            else:
                # The partition may be deleted, and a new one may have its directory.
                fresh.delete()

    def purge(self, now_ms: int) -> None:
        """Delete ``.deleted`` files for which ``file.delete.delay.ms`` have passed."""
        with self._lock:
            due = self._files.take_deleted(now_ms)
        for segment in due:
            segment.delete()

    def _write(
        self, header: BatchHeader, data: BytesLike, marker: TransactionMarker | None
    ) -> None:
        stamp = _STAMP.pack(header.base_offset, header.batch_length, header.partition_leader_epoch)
        if header.size > self.config.segment_bytes:
            raise BrokerError(ErrorCode.record_list_too_large, "larger than a segment")
        if not self._files.has_room_for(header):
            self._roll(header.base_offset)
        segment = self._files.active
        mark = segment.mark()
        try:
            segment.append(header, [stamp, memoryview(data)[len(stamp) :]])
            aborted = marker and self._producers.aborted_by(marker, header.base_offset)
            if aborted is not None:
                segment.transaction_index.append(aborted)
            self._files.flush_if_due(header.record_count)
            if marker is not None:
                self._producers.end_transaction(marker, header.max_timestamp)
            elif header.producer_id != NO_PRODUCER:
                self._producers.update(header)
        except BaseException:
            # All of it or nothing: the next batch gets the same offsets.
            segment.undo(mark)
            raise

    def _roll(self, base_offset: int) -> None:
        write_snapshot(self.directory, base_offset, self._producers)
        # Readers hold the old list; they see the new segment with their next request.
        self._files.roll(base_offset)

    def batches(self, *, committed: bool = False) -> Iterator[StoredBatch]:
        """Yield all batches in order, including those that are appended meanwhile.

        With ``committed``, omits batches of aborted transactions, and ends at the last stable
        offset.
        """
        at = self.start_offset
        while True:
            found = self.locate(at, _READ_BYTES, whole_first=True, committed=committed)
            data = in_memory([found.records])
            if not data:
                return
            for batch in read_sets(data):
                if not is_aborted(batch, found.aborted or ()):
                    yield batch
                at = batch.last_offset + 1

    def records(self, *, committed: bool = False) -> Iterator[StoredRecord]:
        """Yield the records of all ``batches``, without transaction markers."""
        start = self.start_offset
        for batch in self.batches(committed=committed):
            if not batch.is_control:
                yield from (record for record in batch.records() if record.offset >= start)

    def locate(
        self, offset: int, max_bytes: int, *, whole_first: bool, committed: bool = False
    ) -> Fetched:
        """Return batches from ``offset`` on, at most ``max_bytes`` (see ``LogView.fetch``).

        At the end of the log there are none. Raises ``BrokerError`` 1 for an offset outside the
        log, and 56 if the disk fails.
        """
        try:
            view = self.view()
            if not view.start <= offset <= view.end:
                raise _out_of_range(offset, view.start, view.end)
            return view.fetch(offset, max_bytes, whole_first=whole_first, committed=committed)
        except OSError as error:
            raise self._disk_failed(error) from error

    def view(self) -> LogView:
        """Return the current extent of the log, for reads without the lock.

        Raises ``BrokerError`` 56 if the log is offline.
        """
        with self._lock:
            if self._offline is not None:
                self._check_usable()
            segments = self._files.segments
            return LogView(
                segments,
                self.start_offset,
                self._stable_offset(),
                self.end_offset,
                segments[-1].size,
            )

    def flush(self) -> None:
        """Flush everything to disk. Raises ``OSError``."""
        with self._lock:
            self._files.flush(self.end_offset)

    def flush_if_older(self, now_ms: int) -> None:
        """Flush to disk if ``flush.ms`` have passed since the last time. Raises ``OSError``."""
        with self._lock:
            if self._open:
                self._files.flush_if_older(self.end_offset, now_ms)

    def flush_rolled(self) -> None:
        """Flush the inactive segments to disk. Raises ``OSError``.

        After that, recovery has to read only the active segment.
        """
        with self._lock:
            rolled = self._files.rolled_since_flush()
            active = self._files.active.base_offset
        # Without the lock: appends go on meanwhile, to another file.
        for segment in rolled:
            segment.flush()
        with self._lock:
            self._files.recovery_point = max(self._files.recovery_point, active)

    def close(self) -> None:
        """Seal and flush the files, and write a snapshot, so that the next start need not recover.

        Raises ``OSError``.
        """
        with self._lock:
            if self._open:
                self._open = False
                self._files.active.seal()
                self._files.flush(self.end_offset)
                if self.end_offset not in (0, *snapshot_offsets(self.directory)):
                    write_snapshot(self.directory, self.end_offset, self._producers)
                self._files.let_go()

    def abandon(self) -> None:
        """Close the files as in a crash: seal, flush and write nothing."""
        with self._lock:
            self._open = False
            self._files.let_go()


def _out_of_range(offset: int, start: int, end: int) -> BrokerError:
    return BrokerError(ErrorCode.offset_out_of_range, f"{offset} is not in {start}..{end}")
