"""Whether the files of a log are what they should be; nothing is changed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kprod.broker.corrupt_batch import CorruptBatch
from kprod.broker.legacy_message import read_sets
from kprod.broker.log.producer_snapshot import parse_snapshot
from kprod.broker.log.storage_error import StorageError
from kprod.broker.log.transaction_index import TransactionIndex

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


def partition_directories(path: Path) -> list[Path]:
    """The directory itself if it has segments, or else the ones in it that have."""
    if any(path.glob("*.log")):
        return [path]
    return sorted({found.parent for found in path.glob("*/*.log")})


def check_directory(path: Path) -> Iterator[str]:
    """A line for everything that is wrong with a partition's files."""
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
        except (ValueError, struct.error) as error:
            yield f"{snapshot.name}: {error}"


class _Segment:
    """One segment: ``end`` is the offset behind its last good batch, once checked."""

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
            list(TransactionIndex(self._log.with_suffix(".txnindex")))
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
        if len(content) % _OFFSET_ENTRY.size:
            yield "ends in the middle of an entry"
            return
        last = (-1, -1)
        for relative, position in _OFFSET_ENTRY.iter_unpack(content):
            if (relative, position) == (0, 0):
                continue  # room for more entries
            if relative <= last[0] or position <= last[1]:
                yield f"entry {(relative, position)} does not come after {last}"
            if self._starts.get(position) != self._base + relative:
                yield f"no batch that ends at offset {self._base + relative} is at {position}"
            last = (relative, position)

    def _check_times(self, content: bytes) -> Iterator[str]:
        if len(content) % _TIME_ENTRY.size:
            yield "ends in the middle of an entry"
            return
        last = (-1, -1)
        for timestamp, relative in _TIME_ENTRY.iter_unpack(content):
            if (timestamp, relative) == (0, 0):
                continue  # room for more entries
            if timestamp < last[0] or relative < last[1]:
                yield f"entry {(timestamp, relative)} does not come after {last}"
            if timestamp > self._latest or self._base + relative >= self.end:
                yield f"entry {(timestamp, relative)} is behind the records"
            last = (timestamp, relative)
