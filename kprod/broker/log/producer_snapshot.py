"""Producer state on disk (``.snapshot``), so that a start need not read the whole log.

Kafka's format, version 1: ``i16 version, u32 CRC-32C of the rest, i32 count``, then per producer
``i64 id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp,
i32 coordinator epoch, i64 first offset of the open transaction``. The file is named after the
offset up to which it speaks. Only the last batch of a producer is in it, as in Kafka; -1 stands
for none.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Final

from crc32c import crc32c

from kprod.broker.log.durable_file import replace_file
from kprod.broker.producer_state import NO_SEQUENCE, AppendedBatch, ProducerEntry, ProducerState

_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NO_BATCH: Final = AppendedBatch(NO_SEQUENCE, -1, 0, -1)
_KEPT: Final = 2
_log = logging.getLogger(__name__)


def write_snapshot(directory: Path, offset: int, state: ProducerState) -> None:
    """Write the state as it is at ``offset``, durably, and drop all but the newest snapshots."""
    entries = [_pack(producer_id, entry) for producer_id, entry in state]
    rest = _COUNT.pack(len(entries)) + b"".join(entries)
    content = _PREFIX.pack(_VERSION, crc32c(rest)) + rest
    replace_file(directory / f"{offset:020d}.snapshot", content)
    for outdated in snapshot_offsets(directory)[:-_KEPT]:
        drop_snapshot(directory, outdated)


def _pack(producer_id: int, entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else _NO_BATCH
    return _ENTRY.pack(
        producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_start,
    )


def snapshot_offsets(directory: Path) -> list[int]:
    """The offsets there are snapshots of, ascending."""
    stems = [path.stem for path in directory.glob("*.snapshot")]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def drop_snapshot(directory: Path, offset: int) -> None:
    """Forget one snapshot."""
    (directory / f"{offset:020d}.snapshot").unlink(missing_ok=True)


def drop_snapshots_before(directory: Path, offset: int) -> None:
    """Forget the snapshots of segments that are gone."""
    for found in snapshot_offsets(directory):
        if found < offset:
            drop_snapshot(directory, found)


def read_snapshot(directory: Path, offset: int) -> ProducerState | None:
    """The state at ``offset``; None, with a warning, when the file is damaged."""
    path = directory / f"{offset:020d}.snapshot"
    try:
        return parse_snapshot(path.read_bytes())
    except (ValueError, struct.error) as error:
        _log.warning("%s is damaged and was not used: %s", path, error)
        return None


def parse_snapshot(content: bytes) -> ProducerState:
    """The state in the bytes of a file. Raises ``ValueError`` or ``struct.error``."""
    version, crc = _PREFIX.unpack_from(content)
    rest = content[_PREFIX.size :]
    if version != _VERSION or crc32c(rest) != crc:
        raise ValueError(f"version {version} or wrong CRC")
    (count,) = _COUNT.unpack_from(rest)
    if len(rest) != _COUNT.size + count * _ENTRY.size:
        raise ValueError(f"{len(rest)} bytes for {count} producers")
    return ProducerState(_unpack(*fields) for fields in _ENTRY.iter_unpack(rest[_COUNT.size :]))


def _unpack(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> tuple[int, ProducerEntry]:
    entry = ProducerEntry(
        epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_start=transaction_start,
        last_timestamp=timestamp,
    )
    if last_offset >= 0:
        entry.batches.append(AppendedBatch(last_sequence, last_offset, offset_delta, timestamp))
    return producer_id, entry
