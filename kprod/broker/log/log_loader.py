"""Opens a partition's log, after a clean shutdown or with recovery."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from kprod.broker.log.checkpoint_files import StorageError
from kprod.broker.log.leader_epochs import LEADER_EPOCHS_FILE, LeaderEpochs
from kprod.broker.log.local_log import OnFailure, ignore_failure
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.producer_snapshot import ProducerLoader
from kprod.broker.log.segment import LogSegment
from kprod.records.codecs import CorruptBatch
from kprod.types import TopicPartition

_BASE: Final = "[0-9]" * 20
"""A segment's base offset as in the names of its files."""
_log = logging.getLogger(__name__)


class LogLoader:
    """Loads one partition (Kafka: LogLoader). Use once, from one thread.

    ``recovery_point`` is the offset up to which the log is known to be on disk; None after a clean
    shutdown. The log after that offset is recovered: the CRC of each batch is checked, the log is
    cut off at the first incomplete or invalid batch, later segments are deleted, and the indexes
    are rebuilt.
    """

    def __init__(
        self,
        where: TopicPartition,
        directory: Path,
        config: LogConfig,
        *,
        recovery_point: int | None,
        start_offset: int,
        on_failure: OnFailure = ignore_failure,
    ) -> None:
        self._where = where
        self._directory = directory
        self._config = config
        self._recovery_point = recovery_point
        self._start_offset = start_offset
        self._on_failure = on_failure
        self._unindexed: int | None = None

    def load(self) -> PartitionLog:
        """Load the partition. Raises ``OSError`` if files cannot be read or written.

        Raises ``StorageError`` if a damaged batch can be neither skipped nor cut off.
        """
        try:
            return self._load()
        except CorruptBatch as error:
            raise StorageError(
                f"{error}; restore the directory from a copy, or move it away"
            ) from error

    def _load(self) -> PartitionLog:
        self._drop_leftovers()
        bases = self._bases()
        unindexed = {base for base in bases if not self._has_indexes(base)}
        segments = [LogSegment(self._directory, base, self._config) for base in bases]
        segments = self._recover(segments, unindexed)
        start = max(self._start_offset, segments[0].base_offset)
        end = max(segments[-1].intact_end() or start, start)
        segments[-1].open_for_append()
        return PartitionLog(
            self._where,
            self._directory,
            self._config,
            segments,
            ProducerLoader(self._directory, segments, end, self._unindexed).load(),
            self._epochs(segments, start, end),
            start_offset=start,
            end_offset=end,
            on_failure=self._on_failure,
        )

    def _epochs(self, segments: list[LogSegment], start: int, end: int) -> LeaderEpochs:
        epochs = LeaderEpochs(self._directory / LEADER_EPOCHS_FILE)
        if not epochs.entries:
            for segment in segments:
                for _, header in segment.readable_headers(segment.base_offset):
                    epochs.note(header.partition_leader_epoch, header.base_offset)
            epochs.note(0, start)
            epochs.flush()
        epochs.drop_after(max(end, 1))
        return epochs

    def _drop_leftovers(self) -> None:
        """Finish or undo an interrupted compaction or deletion, by the rules of KAFKA-6264."""
        cleaned = [int(path.name[:20]) for path in self._directory.glob(f"{_BASE}*.cleaned")]
        # Segments are swapped from the last one on: the ones from here on were not complete.
        incomplete = min(cleaned, default=None)
        for path in self._directory.glob(f"{_BASE}*.swap"):
            if incomplete is not None and int(path.name[:20]) >= incomplete:
                path.unlink()
        for pattern in ("*.deleted", "*.cleaned", "*.tmp"):
            for leftover in self._directory.glob(pattern):
                leftover.unlink()
        for swapped in sorted(self._directory.glob(f"{_BASE}.log.swap")):
            self._complete_swap(int(swapped.name[:20]))
        for orphan in self._directory.glob("*.swap"):
            orphan.rename(orphan.with_suffix(""))

    def _complete_swap(self, base: int) -> None:
        """Delete the segments that a ``.swap`` segment replaces, and rename that segment.

        Its indexes are rebuilt later.
        """
        fresh = LogSegment(self._directory, base, self._config, ".swap")
        end = base
        for _, header in fresh.records.headers():
            end = header.last_offset + 1
        fresh.close()
        for path in self._directory.glob("*.log"):
            if path.stem.isdigit() and base <= int(path.stem) < end:
                for kind in ("index", "timeindex", "txnindex", "log"):
                    path.with_suffix(f".{kind}").unlink(missing_ok=True)
        for kind in ("index", "timeindex"):
            (self._directory / f"{base:020d}.{kind}.swap").unlink()
        swapped = self._directory / f"{base:020d}.log.swap"
        swapped.rename(swapped.with_suffix(""))

    def _bases(self) -> list[int]:
        logs = {path.stem for path in self._directory.glob("*.log") if path.stem.isdigit()}
        for suffix in ("index", "timeindex", "txnindex"):
            for index in self._directory.glob(f"*.{suffix}"):
                if index.stem not in logs:
                    index.unlink()
        return sorted(int(stem) for stem in logs) or [self._start_offset]

    def _has_indexes(self, base: int) -> bool:
        suffixes = ("index", "timeindex")
        return all((self._directory / f"{base:020d}.{suffix}").exists() for suffix in suffixes)

    def _recover(self, segments: list[LogSegment], unindexed: set[int]) -> list[LogSegment]:
        for number, segment in enumerate(segments):
            rest = segments[number + 1 :]
            if not self._in_doubt(segment, rest):
                self._mend_indexes(segment, segment.base_offset in unindexed)
                continue
            self._reindex_aborted(segment)
            dropped = segment.recover()
            segment.flush()
            if dropped:
                _log.warning("%s: cut off %d bytes", segment.records.path, dropped)
                self._drop(rest)
                return segments[: number + 1]
            if rest:
                segment.seal()
        return segments

    def _in_doubt(self, segment: LogSegment, rest: list[LogSegment]) -> bool:
        """Whether the segment may differ from what was acknowledged, and must be recovered."""
        if self._recovery_point is None:
            return not rest and segment.intact_end() is None
        return not rest or rest[0].base_offset > self._recovery_point

    def _mend_indexes(self, segment: LogSegment, missing: bool) -> None:
        sane = segment.offset_index.sane and segment.time_index.sane
        if segment.size > 0 and (missing or not sane):
            _log.warning("%s: rebuilding the indexes", segment.records.path)
            segment.rebuild_indexes()
            segment.seal()
        try:
            segment.transaction_index.load()
        except StorageError as error:
            _log.warning("%s; it is made anew", error)
            self._reindex_aborted(segment)
        if self._unindexed is not None:
            segment.transaction_index.clear()

    def _reindex_aborted(self, segment: LogSegment) -> None:
        """Have the indexes of aborted transactions rebuilt, from this segment on."""
        if self._unindexed is None:
            self._unindexed = segment.base_offset

    def _drop(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            segment.close()
            _log.warning("%s: dropped", segment.records.path)
            segment.delete()
