"""What a partition knew of its producers, put together when its log is opened."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kprod.broker.corrupt_batch import CorruptBatch
from kprod.broker.legacy_message import LegacyMessage, StoredHeader
from kprod.broker.log.producer_snapshot import drop_snapshot, read_snapshot, snapshot_offsets
from kprod.broker.log.segment import LogSegment
from kprod.broker.producer_state import NO_PRODUCER, ProducerState
from kprod.broker.transaction_marker import read_marker

_TAIL_BYTES: Final = 8 * 1024 * 1024
_log = logging.getLogger(__name__)


class ProducerLoader:
    """Loads the state of one partition (Kafka: UnifiedLog.rebuildProducerState). Use once.

    It comes from a snapshot and the batches after it, and at least from the last few MiB of the
    log: a snapshot knows one batch per producer, but up to five may be resent. The segments from
    ``unindexed`` on get their indexes of aborted transactions anew (None: they all have one). A
    transaction may have begun in a segment before, so that a snapshot from before them is taken.
    """

    def __init__(
        self, directory: Path, segments: list[LogSegment], end: int, unindexed: int | None
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._end = end
        self._unindexed = end if unindexed is None else unindexed

    def load(self) -> ProducerState:
        """Raises ``OSError`` when an index cannot be written."""
        snapshot, offset = self._snapshot()
        state = ProducerState()
        resumed = False
        for segment, position, header in self._batches(min(offset, _tail_start(self._segments))):
            if header.base_offset >= offset and not resumed:
                state.resume(snapshot)
                resumed = True
            if isinstance(header, LegacyMessage) or header.producer_id == NO_PRODUCER:
                continue
            if not header.is_control:
                state.update(header)
            elif resumed:
                self._end_transaction(state, segment, position, header)
        if not resumed:
            state.resume(snapshot)
        return state

    def _batches(self, start: int) -> Iterator[tuple[LogSegment, int, StoredHeader]]:
        for segment in self._segments:
            for position, header in _readable(segment, max(start, segment.base_offset)):
                if header.base_offset >= start:
                    yield segment, position, header

    def _end_transaction(
        self, state: ProducerState, segment: LogSegment, position: int, header: StoredHeader
    ) -> None:
        try:
            marker = read_marker(segment.batch_at(position, header))
        except CorruptBatch as error:
            _log.warning("%s; that transaction stays open", error)
            return
        if marker is None:
            return
        aborted = state.aborted_by(marker, header.base_offset)
        if aborted is not None and segment.base_offset >= self._unindexed:
            segment.transaction_index.append(aborted)
        state.end_transaction(marker, header.max_timestamp)

    def _snapshot(self) -> tuple[ProducerState, int]:
        """The newest that is of use, and its offset. Those that are not of this log are dropped."""
        found = ProducerState(), 0
        for offset in snapshot_offsets(self._directory):
            state = read_snapshot(self._directory, offset) if offset <= self._end else None
            if state is None:
                drop_snapshot(self._directory, offset)
            elif offset <= self._unindexed:
                found = state, offset
        return found


def _readable(segment: LogSegment, offset: int) -> Iterator[tuple[int, StoredHeader]]:
    """The batches from an offset on, up to one that is damaged: the rest of the log is not."""
    try:
        yield from segment.headers_from(offset)
    except CorruptBatch as error:
        _log.warning("%s; what comes after it there is not read", error)


def _tail_start(segments: list[LogSegment]) -> int:
    """An offset some ``_TAIL_BYTES`` before the end of the log."""
    left = _TAIL_BYTES
    for segment in reversed(segments):
        if segment.size >= left:
            return segment.offset_index.offset_before(segment.size - left)
        left -= segment.size
    return segments[0].base_offset
