"""Prints and checks the files of a log, for ``kprod log``."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from kprod.broker.log.checkpoint_files import StorageError
from kprod.broker.log.indexes import TransactionIndex
from kprod.broker.log.producer_snapshot import parse_snapshot
from kprod.records.codecs import CODEC_NAMES, CorruptBatch
from kprod.records.legacy_message import LegacyMessage, read_sets
from kprod.records.record_batch import RecordBatch, StoredRecord

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_Entry: TypeAlias = tuple[int, int]
_CUT: Final = "ends in the middle of an entry"


def partition_directories(path: Path) -> list[Path]:
    """Return ``path`` itself if it has segments, else its subdirectories that have segments."""
    if any(path.glob("*.log")):
        return [path]
    return sorted({found.parent for found in path.glob("*/*.log")})


def check_directory(path: Path) -> Iterator[str]:
    """Yield a line for each problem in a partition's files."""
    end = -1
    for log in sorted(path.glob("*.log")):
        if not log.stem.isdigit():
            yield f"{log.name}: not the name of a segment"
            continue
        if int(log.stem) < end:
            yield f"{log.name}: begins before offset {end}, where the last segment ended"
        checking = _Segment(log)
        yield from checking.problems()
        end = checking.end
    for kind in ("index", "timeindex", "txnindex"):
        for orphan in sorted(path.glob(f"*.{kind}")):
            if not orphan.with_suffix(".log").exists():
                yield f"{orphan.name}: there is no .log file of that name"
    for snapshot in sorted(path.glob("*.snapshot")):
        try:
            parse_snapshot(snapshot.read_bytes())
        except ValueError as error:
            yield f"{snapshot.name}: {error}"


class _Segment:
    """One segment of a log.

    ``problems`` sets ``end`` to the offset that follows the last valid batch.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._base = self.end = int(log.stem)
        self._starts: dict[int, int] = {}  # position of each batch to its last offset
        self._latest = -1

    def problems(self) -> Iterator[str]:
        yield from self._check_log()
        for kind, check in (("index", self._check_offsets), ("timeindex", self._check_times)):
            path = self._log.with_suffix(f".{kind}")
            if not path.exists():
                yield f"{path.name}: missing"
            else:
                yield from (f"{path.name}: {problem}" for problem in check(path.read_bytes()))
        try:
            TransactionIndex(self._log.with_suffix(".txnindex")).load()
        except StorageError as error:
            yield str(error)

    def _check_log(self) -> Iterator[str]:
        content, position = self._log.read_bytes(), 0
        try:
            for entry in read_sets(content):
                where = f"{self._log.name}: position {position}"
                if not entry.crc_ok:
                    yield f"{where}: the CRC does not match"
                elif entry.base_offset < self.end:
                    yield f"{where}: offset {entry.base_offset} again"
                else:
                    records = list(entry.records())
                    self._latest = max([self._latest, *(r.timestamp for r in records)])
                self._starts[position] = entry.last_offset
                self.end = max(self.end, entry.last_offset + 1)
                position += entry.size
        except CorruptBatch as error:
            yield f"{self._log.name}: position {position}: {error}"
            return
        if position < len(content):
            yield f"{self._log.name}: {len(content) - position} bytes are no whole batch"

    def _check_offsets(self, content: bytes) -> Iterator[str]:
        for entry, last in _entries(content, _OFFSET_ENTRY):
            relative, position = entry
            if relative <= last[0] or position <= last[1]:
                yield f"entry {entry} does not come after {last}"
            if self._starts.get(position) != self._base + relative:
                yield f"no batch that ends at offset {self._base + relative} is at {position}"
        if len(content) % _OFFSET_ENTRY.size:
            yield _CUT

    def _check_times(self, content: bytes) -> Iterator[str]:
        for entry, last in _entries(content, _TIME_ENTRY):
            timestamp, relative = entry
            if timestamp < last[0] or relative < last[1]:
                yield f"entry {entry} does not come after {last}"
            if timestamp > self._latest or self._base + relative >= self.end:
                yield f"entry {entry} is behind the records"
        if len(content) % _TIME_ENTRY.size:
            yield _CUT


def _entries(content: bytes, layout: struct.Struct) -> Iterator[tuple[_Entry, _Entry]]:
    """Yield each used entry, together with the one before it.

    Yields nothing if the file ends in the middle of an entry.
    """
    last = (-1, -1)
    for entry in () if len(content) % layout.size else layout.iter_unpack(content):
        if any(entry):  # the others are room for more
            yield entry, last
            last = entry


def dump_file(path: Path, *, records: bool = False) -> Iterator[str]:
    """Yield the content of a file as lines of text.

    Raises ``CorruptBatch``, and ``ValueError`` for an unknown kind of file.
    """
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
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Not closed: an exception refers to views of it, with which closing it would fail.
    position = 0
    for entry in read_sets(memoryview(mapped)):
        yield f"position: {position} {_batch(entry)}"
        position += entry.size
        if records:
            for record in entry.records():
                yield f"| {_record(record)}"
    if position < len(mapped):
        yield f"position: {position} {len(mapped) - position} bytes are no whole batch"


def _batch(entry: RecordBatch | LegacyMessage) -> str:
    crc = "valid" if entry.crc_ok else "WRONG"
    if isinstance(entry, LegacyMessage):
        start = f"offset: {entry.offset} magic: {entry.magic} size: {entry.size}"
        return f"{start} {_codec(entry.codec)} crc: {crc}"
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
    """Yield the used entries. In an index that is still written to, zeros come after them."""
    content = path.read_bytes()
    entries = list(layout.iter_unpack(content[: len(content) // layout.size * layout.size]))
    while entries and not any(entries[-1]):
        entries.pop()
    yield from entries


def _transaction_index(path: Path) -> Iterator[str]:
    for one in TransactionIndex(path).load():
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
