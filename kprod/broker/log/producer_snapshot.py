"""Producer state on disk (``.snapshot``), and how it is rebuilt when a log is opened.

Kafka's format, version 1: ``i16 version, u32 CRC-32C of the rest, i32 count``, then per producer
``i64 id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp,
i32 coordinator epoch, i64 first offset of the open transaction``. A snapshot covers the log up to
the offset in the name of its file. As in Kafka, a snapshot has only the last batch of each
producer. A number of -1 stands for none.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from crc32c import crc32c

from kprod.broker.log.checkpoint_files import replace_file
from kprod.broker.log.producer_state import (
    NO_PRODUCER,
    NO_SEQUENCE,
    AppendedBatch,
    ProducerEntry,
    ProducerState,
    no_batches,
)
from kprod.broker.log.segment import LogSegment
from kprod.broker.records.batch_writer import read_marker
from kprod.records.codecs import CorruptBatch
from kprod.records.legacy_message import LegacyMessage, StoredHeader

_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NO_BATCH: Final = AppendedBatch(NO_SEQUENCE, -1, 0, -1)
_KEPT: Final = 2
_log = logging.getLogger(__name__)


def write_snapshot(directory: Path, offset: int, state: ProducerState) -> None:
    """Write the state at ``offset`` durably, and delete all but the two newest snapshots."""
    entries = []
    for producer_id, entry in state:
        last = entry.batches[-1] if entry.batches else _NO_BATCH
        batch = (last.last_sequence, last.last_offset, last.offset_delta, entry.last_timestamp)
        transaction = (entry.coordinator_epoch, entry.transaction_start)
        entries.append(_ENTRY.pack(producer_id, entry.epoch, *batch, *transaction))
    rest = _COUNT.pack(len(entries)) + b"".join(entries)
    content = _PREFIX.pack(_VERSION, crc32c(rest)) + rest
    replace_file(directory / f"{offset:020d}.snapshot", content)
    for outdated in snapshot_offsets(directory)[:-_KEPT]:
        drop_snapshot(directory, outdated)


def snapshot_offsets(directory: Path) -> list[int]:
    """Return the offsets of the snapshots in a directory, in ascending order."""
    stems = [path.stem for path in directory.glob("*.snapshot")]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def drop_snapshot(directory: Path, offset: int) -> None:
    """Delete one snapshot."""
    (directory / f"{offset:020d}.snapshot").unlink(missing_ok=True)


def drop_snapshots_before(directory: Path, offset: int) -> None:
    """Delete the snapshots before ``offset``, which belong to deleted segments."""
    for found in snapshot_offsets(directory):
        if found < offset:
            drop_snapshot(directory, found)


def read_snapshot(directory: Path, offset: int) -> ProducerState | None:
    """Return the state at ``offset``; None, with a warning, if the file is damaged."""
    path = directory / f"{offset:020d}.snapshot"
    try:
        return parse_snapshot(path.read_bytes())
    except ValueError as error:
        _log.warning("%s is damaged and was not used: %s", path, error)
        return None


def parse_snapshot(content: bytes) -> ProducerState:
    """Parse the content of a snapshot. Raises ``ValueError``."""
    if len(content) < _PREFIX.size + _COUNT.size:
        raise ValueError(f"{len(content)} bytes are no snapshot")
    version, crc = _PREFIX.unpack_from(content)
    rest = content[_PREFIX.size :]
    if version != _VERSION or crc32c(rest) != crc:
        raise ValueError(f"version {version} or wrong CRC")
    (count,) = _COUNT.unpack_from(rest)
    if len(rest) != _COUNT.size + count * _ENTRY.size:
        raise ValueError(f"{len(rest)} bytes for {count} producers")
    return ProducerState(map(_unpack, _ENTRY.iter_unpack(rest[_COUNT.size :])))


def _unpack(fields: tuple[int, ...]) -> tuple[int, ProducerEntry]:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, start = fields
    entry = ProducerEntry(epoch, no_batches(), coordinator, start, timestamp)
    if last_offset >= 0:
        entry.batches.append(AppendedBatch(last_sequence, last_offset, delta, timestamp))
    return producer_id, entry


_TAIL_BYTES: Final = 8 * 1024 * 1024


class ProducerLoader:
    """Loads the producer state of one partition (Kafka: UnifiedLog.rebuildProducerState). Use once.

    The state is read from a snapshot and the batches after it. In any case, the last few MiB of the
    log are read: a snapshot has only one batch per producer, but a producer may resend up to five.

    For segments from ``unindexed`` on (None: for no segment), the indexes of aborted transactions
    are also rebuilt. For that, the snapshot must be older than these segments, because a
    transaction may have begun before them.
    """

    def __init__(
        self, directory: Path, segments: list[LogSegment], end: int, unindexed: int | None
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._end = end
        self._unindexed = end if unindexed is None else unindexed

    def load(self) -> ProducerState:
        """Load the state. Raises ``OSError`` if an index cannot be written."""
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
            for position, header in segment.readable_headers(max(start, segment.base_offset)):
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
        """Return the newest usable snapshot and its offset.

        Damaged snapshots, and those beyond the end of the log, are deleted.
        """
        found = ProducerState(), 0
        for offset in snapshot_offsets(self._directory):
            state = read_snapshot(self._directory, offset) if offset <= self._end else None
            if state is None:
                drop_snapshot(self._directory, offset)
            elif offset <= self._unindexed:
                found = state, offset
        return found


def _tail_start(segments: list[LogSegment]) -> int:
    """Return an offset that is about 8 MiB before the end of the log."""
    left = _TAIL_BYTES
    for segment in reversed(segments):
        if segment.size >= left:
            return segment.offset_index.offset_before(segment.size - left)
        left -= segment.size
    return segments[0].base_offset
