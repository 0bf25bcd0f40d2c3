"""The files of a log in words, a line at a time (Kafka: DumpLogSegments)."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kprod.broker.codecs import CODEC_NAMES
from kprod.broker.legacy_message import LegacyMessage, read_sets
from kprod.broker.log.producer_snapshot import parse_snapshot
from kprod.broker.log.transaction_index import TransactionIndex
from kprod.broker.record_batch import RecordBatch
from kprod.broker.stored_record import StoredRecord

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


def dump_file(path: Path, *, records: bool = False) -> Iterator[str]:
    """What a file holds. Raises ``ValueError`` for a file of no known kind, ``CorruptBatch``."""
    kind = next((part for part in reversed(path.suffixes) if part in _KINDS), "")
    if kind == ".log":
        yield from _log(path, records)
    elif kind:
        yield from _KINDS[kind](path)
    else:
        raise ValueError(f"not one of {', '.join(_KINDS)}")


def _log(path: Path, records: bool) -> Iterator[str]:
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        position = 0
        view = memoryview(mapped)
        try:
            for entry in read_sets(view):
                yield f"position: {position} {_batch(entry)}"
                position += entry.size
                if records:
                    for record in entry.records():
                        yield f"| {_record(record)}"
                if isinstance(entry, RecordBatch | LegacyMessage):
                    entry.data.release()
            if position < len(mapped):
                yield f"position: {position} {len(mapped) - position} bytes are no whole batch"
        finally:
            view.release()


def _batch(entry: RecordBatch | LegacyMessage) -> str:
    crc = "valid" if entry.crc_ok else "WRONG"
    if isinstance(entry, LegacyMessage):
        codec = CODEC_NAMES[entry.codec]
        return f"offset: {entry.offset} magic: {entry.magic} size: {entry.size} {codec} crc: {crc}"
    flags = [
        name
        for name, given in (
            ("transactional", entry.is_transactional),
            ("control", entry.is_control),
            ("append-time", entry.is_log_append_time),
        )
        if given
    ]
    return (
        f"offsets: {entry.base_offset}..{entry.last_offset} count: {entry.record_count} "
        f"size: {entry.size} magic: {entry.magic} codec: {_codec(entry.codec)} "
        f"leader epoch: {entry.partition_leader_epoch} time: {_time(entry.max_timestamp)} "
        f"producer: {entry.producer_id} epoch: {entry.producer_epoch} "
        f"sequence: {entry.base_sequence} crc: {crc} {' '.join(flags)}"
    ).rstrip()


def _codec(number: int) -> str:
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"unknown ({number})"


def _record(record: StoredRecord) -> str:
    headers = " ".join(f"{name}={value!r}" for name, value in record.headers)
    text = f"offset: {record.offset} time: {_time(record.timestamp)} key: {record.key!r} "
    return f"{text}value: {record.value!r}" + (f" headers: {headers}" if headers else "")


def _time(timestamp: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return str(timestamp) if timestamp < 0 else moment.isoformat(timespec="milliseconds")


def _offset_index(path: Path) -> Iterator[str]:
    for relative, position in _used(path, _OFFSET_ENTRY):
        yield f"offset: {_base(path) + relative} position: {position}"


def _time_index(path: Path) -> Iterator[str]:
    for timestamp, relative in _used(path, _TIME_ENTRY):
        yield f"time: {_time(timestamp)} ({timestamp}) offset: {_base(path) + relative}"


def _used(path: Path, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    """The entries in use: an index that is written to ends in zeros."""
    content = path.read_bytes()
    entries = list(layout.iter_unpack(content[: len(content) // layout.size * layout.size]))
    while entries and not any(entries[-1]):
        entries.pop()
    yield from entries


def _transaction_index(path: Path) -> Iterator[str]:
    for one in TransactionIndex(path):
        yield (
            f"producer: {one.producer_id} offsets: {one.first_offset}..{one.last_offset} "
            f"last stable offset: {one.last_stable_offset}"
        )


def _snapshot(path: Path) -> Iterator[str]:
    for producer_id, entry in parse_snapshot(path.read_bytes()):
        last = entry.batches[-1] if entry.batches else None
        yield (
            f"producer: {producer_id} epoch: {entry.epoch} "
            f"last sequence: {last.last_sequence if last else -1} "
            f"last offset: {last.last_offset if last else -1} "
            f"coordinator epoch: {entry.coordinator_epoch} "
            f"transaction since: {entry.transaction_start}"
        )


def _base(path: Path) -> int:
    stem = path.name.partition(".")[0]
    if not stem.isdigit():
        raise ValueError("the name does not begin with an offset")
    return int(stem)


_KINDS: Final[dict[str, Callable[[Path], Iterator[str]]]] = {
    ".log": lambda path: _log(path, False),
    ".index": _offset_index,
    ".timeindex": _time_index,
    ".txnindex": _transaction_index,
    ".snapshot": _snapshot,
}
