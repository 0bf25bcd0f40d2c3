"""Opening a partition's log: what is on disk after a clean end, and after any other."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.producer_snapshot import drop_snapshot, read_snapshot, snapshot_offsets
from kprod.broker.log.segment import LogSegment
from kprod.broker.producer_state import NO_PRODUCER, ProducerState
from kprod.types import TopicPartition

_TAIL_BYTES: Final = 8 * 1024 * 1024
_log = logging.getLogger(__name__)


class LogLoader:
    """Loads one partition (Kafka: LogLoader). Use once, from one thread.

    ``recovery_point`` is the offset up to which the log is known to be on disk; None after a clean
    shutdown. Everything behind it is read: each batch's CRC is checked, the log is cut off at the
    first that is not whole and valid, later segments are dropped, and the indexes are rebuilt.
    Producer state comes from the newest snapshot and the batches after it, and at least from the
    last few MiB of the log: a snapshot knows one batch per producer, but up to five may be resent.
    """

    def __init__(
        self,
        where: TopicPartition,
        directory: Path,
        config: LogConfig,
        *,
        recovery_point: int | None,
        start_offset: int,
    ) -> None:
        self._where = where
        self._directory = directory
        self._config = config
        self._recovery_point = recovery_point
        self._start_offset = start_offset

    def load(self) -> PartitionLog:
        """Raises ``OSError`` when files cannot be read or written."""
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
            self._producers(segments, end),
            start_offset=start,
            end_offset=end,
        )

    def _drop_leftovers(self) -> None:
        for pattern in ("*.deleted", "*.cleaned", "*.tmp"):
            for leftover in self._directory.glob(pattern):
                leftover.unlink()

    def _bases(self) -> list[int]:
        logs = {path.stem for path in self._directory.glob("*.log") if path.stem.isdigit()}
        for suffix in ("index", "timeindex"):
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
        """Whether the file may not be what was acknowledged."""
        if self._recovery_point is None:
            return not rest and segment.intact_end() is None
        return not rest or rest[0].base_offset > self._recovery_point

    def _mend_indexes(self, segment: LogSegment, missing: bool) -> None:
        sane = segment.offset_index.sane and segment.time_index.sane
        if segment.size > 0 and (missing or not sane):
            _log.warning("%s: rebuilding the indexes", segment.records.path)
            segment.rebuild_indexes()
            segment.seal()

    def _drop(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            segment.close()
            _log.warning("%s: dropped", segment.records.path)
            for suffix in ("log", "index", "timeindex"):
                segment.records.path.with_suffix(f".{suffix}").unlink()

    def _producers(self, segments: list[LogSegment], end: int) -> ProducerState:
        snapshot, offset = self._newest_snapshot(end)
        start = min(offset, _tail_start(segments))
        state = snapshot if start == offset else ProducerState()
        for segment in segments:
            for header in segment.headers_from(max(start, segment.base_offset)):
                if header.base_offset >= start and header.producer_id != NO_PRODUCER:
                    state.update(header)
        state.adopt(snapshot)
        return state

    def _newest_snapshot(self, end: int) -> tuple[ProducerState, int]:
        for offset in reversed(snapshot_offsets(self._directory)):
            state = read_snapshot(self._directory, offset) if offset <= end else None
            if state is not None:
                return state, offset
            drop_snapshot(self._directory, offset)
        return ProducerState(), 0


def _tail_start(segments: list[LogSegment]) -> int:
    """An offset some ``_TAIL_BYTES`` before the end of the log."""
    left = _TAIL_BYTES
    for segment in reversed(segments):
        if segment.size >= left:
            return segment.offset_index.offset_before(segment.size - left)
        left -= segment.size
    return segments[0].base_offset
