"""The aborted transactions of a segment (``.txnindex``)."""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kprod.broker.legacy_message import StoredHeader
from kprod.broker.log.storage_error import StorageError

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """One transaction that was aborted: from its first record to its marker.

    ``last_stable_offset`` is the first offset that was not decided when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def is_aborted(batch: StoredHeader, aborted: Sequence[AbortedTransaction]) -> bool:
    """Whether a batch belongs to one of these transactions."""
    return batch.is_transactional and any(
        one.producer_id == batch.producer_id
        and one.first_offset <= batch.base_offset <= one.last_offset
        for one in aborted
    )


class TransactionIndex:
    """Entries ``i16 version, i64 producer id, i64 first, i64 last, i64 last stable offset``.

    The file is made with the first entry: most segments have none. It is read once, then kept in
    memory. Kafka: TransactionIndex. One thread at a time loads and writes (the partition's lock);
    once it is loaded, any thread may read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = None

    def load(self) -> list[AbortedTransaction]:
        """All entries, oldest first. Raises ``StorageError`` for a file that is damaged."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def _read(self) -> list[AbortedTransaction]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        if len(content) % _ENTRY.size:
            raise StorageError(f"{self.path} ends in the middle of an entry")
        found = []
        for version, *fields in _ENTRY.iter_unpack(content):
            if version != _VERSION:
                raise StorageError(f"{self.path} has an entry of version {version}")
            found.append(AbortedTransaction(*fields))
            if found[-1].last_offset <= (found[-2].last_offset if len(found) > 1 else -1):
                raise StorageError(f"{self.path}: {found[-1]} does not come after the one before")
        return found

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self.load())

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry; last offsets increase. After an ``OSError`` call ``truncate``."""
        entries = self.load()
        with self.path.open("ab") as file:
            file.write(_ENTRY.pack(_VERSION, *aborted))
        entries.append(aborted)

    def between(self, start: int, end: int) -> Iterator[AbortedTransaction]:
        """The ones that have records from offset ``start`` to the one before ``end``."""
        entries = self.load()
        for one in entries[bisect_left(entries, start, key=lambda e: e.last_offset) :]:
            if one.first_offset < end:
                yield one

    def truncate(self, count: int) -> None:
        """Forget all entries but the first ones. ``OSError``."""
        kept = self.load()[:count]
        if kept:
            os.truncate(self.path, count * _ENTRY.size)
        else:
            self.path.unlink(missing_ok=True)
        self._entries = kept

    def clear(self) -> None:
        """Forget everything, damaged or not; the file goes."""
        self.path.unlink(missing_ok=True)
        self._entries = []

    def flush(self) -> None:
        """Force the entries to the disk. ``OSError``."""
        if self._entries:
            with self.path.open("rb") as file:
                os.fdatasync(file.fileno())
