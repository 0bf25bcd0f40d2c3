"""The indexes of a segment: by offset, by timestamp, and of its aborted transactions."""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kprod.broker.descriptors import OpenFile, closed_in_children
from kprod.broker.log.checkpoint_files import StorageError, sync_data
from kprod.records.legacy_message import StoredHeader


class MappedEntries:
    """A file of entries, one after the other. Until ``trim``, there is room for more at its end.

    Entries are added and removed under the partition's lock; reading takes no lock. An entry is
    written before ``count`` includes it, and then never changes. When the file is mapped again, the
    old mapping stays valid for readers that still refer to it. An index without entries uses
    neither memory nor a descriptor.

    This class is like Kafka's AbstractIndex, except that entries are written by a system call: on a
    full disk, a write to mapped memory would end the process.
    """

    _layout: struct.Struct
    _relative_at: int  # which field of an entry is an offset, relative to the base offset

    def __init__(self, path: Path, base_offset: int) -> None:
        """Open the file. Entries can be added after ``grow``."""
        layout = self._layout
        self.path = path
        self._base_offset = base_offset
        path.touch(0o644)
        self.byte_size = path.stat().st_size
        self.count = self.capacity = self.byte_size // layout.size
        self._map = _mapped(path, self.byte_size)
        self._file: OpenFile | None = None  # to append to

    def __getitem__(self, position: int) -> tuple[Any, ...]:
        mapped = self._map
        if mapped is None or not 0 <= position < self.count:
            raise IndexError(position)
        return self._layout.unpack_from(mapped, position * self._layout.size)

    def add(self, *fields: int) -> None:
        """Add an entry. Raises ``IndexError`` if the index is full, and ``OSError``."""
        if self.count >= self.capacity:
            raise IndexError(f"{self.path} is full")
        if self.byte_size < self.capacity * self._layout.size:
            self._resize(self.capacity * self._layout.size)
        if self._file is None:
            self._file = OpenFile(os.open(self.path, os.O_WRONLY | os.O_CLOEXEC))
        os.pwrite(self._file.fd, self._layout.pack(*fields), self.count * self._layout.size)
        self.count += 1

    @property
    def last_offset(self) -> int:
        """The offset of the last entry. For an empty index, it is the base offset."""
        return self._offset_at(self.count - 1)

    def _offset_at(self, entry: int) -> int:
        """Return the offset of an entry, by its number. For -1, return the base offset."""
        return self._base_offset + (self[entry][self._relative_at] if entry >= 0 else 0)

    @property
    def sane(self) -> bool:
        """Whether the file's size and last entry are valid, which is all that Kafka checks."""
        whole = self.byte_size % self._layout.size == 0
        return whole and self.last_offset >= self._base_offset

    def rename(self, path: Path) -> None:
        """Give the file another name."""
        self._stop_writing()
        self.path.rename(path)
        self.path = path

    def cut(self, count: int) -> None:
        """Keep only the first ``count`` entries."""
        self.count = count

    def grow(self, max_bytes: int) -> None:
        """Allow as many entries as fit in ``max_bytes``."""
        self.capacity = max_bytes // self._layout.size

    def trim(self) -> None:
        """Shrink the file to its entries. No further entries can be added."""
        self.capacity = self.count
        self._resize(self.count * self._layout.size)
        self._stop_writing()

    def _stop_writing(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _resize(self, byte_size: int) -> None:
        os.truncate(self.path, byte_size)
        self.byte_size = byte_size
        self._map = _mapped(self.path, byte_size)

    def flush(self) -> None:
        """Flush the entries and the size of the file to disk."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the file without changing it. The entries can no longer be read. Idempotent."""
        self.count = self.capacity = 0
        self._map = None
        self._stop_writing()


def _mapped(path: Path, byte_size: int) -> mmap.mmap | None:
    """Map the file into memory; None for an empty file, which cannot be mapped."""
    if not byte_size:
        return None
    with path.open("rb") as file:
        # It has a descriptor of its own.
        return closed_in_children(mmap.mmap(file.fileno(), byte_size, access=mmap.ACCESS_READ))


class OffsetIndex(MappedEntries):
    """Entries ``i32 relative offset, i32 position``, both strictly increasing. Kafka: OffsetIndex.

    An entry has the last offset of a batch and the position in bytes at which the batch starts in
    the segment's file. ``MappedEntries`` says which threads may use it.
    """

    _layout = struct.Struct(">ii")
    _relative_at = 0

    @property
    def full(self) -> bool:
        """Whether no further entry can be added."""
        return self.count >= self.capacity

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises ``ValueError`` unless ``offset`` is larger than ``last_offset``."""
        if self.count and offset <= self.last_offset:
            raise ValueError(f"offset {offset} does not come after {self.last_offset}")
        self.add(offset - self._base_offset, position)

    def lookup(self, offset: int) -> int:
        """Return the position of the last indexed batch that ends at or before ``offset``, or 0."""
        after = bisect_right(range(self.count), offset, key=self._offset_at)
        position: int = self[after - 1][1] if after else 0
        return position

    def offset_before(self, position: int) -> int:
        """Return the offset of the last indexed batch that starts at or before ``position``.

        If there is none, return the base offset.
        """
        after = bisect_right(range(self.count), position, key=lambda n: self[n][1])
        return self._offset_at(after - 1)

    def offset_behind(self, position: int) -> int | None:
        """Return the offset of the first indexed batch that starts at or after ``position``.

        If there is none, return None.
        """
        at = bisect_left(range(self.count), position, key=lambda n: self[n][1])
        return self._offset_at(at) if at < self.count else None


class TimestampOffset(NamedTuple):
    """A timestamp (milliseconds) and an offset.

    In a time index, this means: up to the offset, no record of the segment has a larger timestamp.
    """

    timestamp: int
    offset: int


class TimeIndex(MappedEntries):
    """Entries ``i64 timestamp, i32 relative offset``, with increasing timestamps. Kafka: TimeIndex.

    The last slot is reserved for the entry that is added when the segment is sealed.
    ``MappedEntries`` says which threads may use it.
    """

    _layout = struct.Struct(">qi")
    _relative_at = 1

    @property
    def full(self) -> bool:
        """Whether only the reserved slot is left, or none."""
        return self.count >= self.capacity - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry. For an empty index, it is timestamp -1 at the base offset."""
        return self._entry_at(self.count - 1)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one and the index has room."""
        latest = self[self.count - 1][0] if self.count else -1
        if timestamp > latest and self.count < self.capacity:
            self.add(timestamp, offset - self._base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry with a timestamp of at most ``timestamp``, or ``none``."""
        return self._entry_at(
            bisect_right(range(self.count), timestamp, key=lambda n: self[n][0]) - 1
        )

    @property
    def none(self) -> TimestampOffset:
        """What ``last`` is in an empty index."""
        return self._entry_at(-1)

    def _entry_at(self, entry: int) -> TimestampOffset:
        timestamp, relative = self[entry] if entry >= 0 else (-1, 0)
        return TimestampOffset(timestamp, self._base_offset + relative)


_ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
_ABORTED_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction. Its offsets are those of its first record and of its marker.

    ``last_stable_offset`` is the first offset of the oldest transaction that was still open after
    the marker. If there was none, it is the offset after the marker.
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

    The file is created with the first entry, since most segments have none. The file is read once,
    and the entries are kept in memory. Only one thread at a time may load and write, so the caller
    must hold the partition's lock. Once the index is loaded, any thread may read. Kafka:
    TransactionIndex.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = None

    def load(self) -> list[AbortedTransaction]:
        """Return all entries, oldest first. Raises ``StorageError`` if the file is damaged."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def _read(self) -> list[AbortedTransaction]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        if len(content) % _ABORTED_ENTRY.size:
            raise StorageError(f"{self.path} ends in the middle of an entry")
        found = []
        for version, *fields in _ABORTED_ENTRY.iter_unpack(content):
            if version != _ABORTED_VERSION:
                raise StorageError(f"{self.path} has an entry of version {version}")
            found.append(AbortedTransaction(*fields))
            if found[-1].last_offset <= (found[-2].last_offset if len(found) > 1 else -1):
                raise StorageError(f"{self.path}: {found[-1]} does not come after the one before")
        return found

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry, whose marker must come after those of the other entries.

        If this raises ``OSError``, call ``truncate``.
        """
        entries = self.load()
        with self.path.open("ab") as file:
            file.write(_ABORTED_ENTRY.pack(_ABORTED_VERSION, *aborted))
        entries.append(aborted)

    def between(self, start: int, end: int) -> Iterator[AbortedTransaction]:
        """Yield the transactions that have offsets from ``start`` to before ``end``."""
        entries = self.load()
        for one in entries[bisect_left(entries, start, key=lambda e: e.last_offset) :]:
            if one.first_offset < end:
                yield one

    def rename(self, path: Path) -> None:
        """Rename the file if it exists."""
        if self.path.exists():
            self.path.rename(path)
        self.path = path

    def truncate(self, count: int) -> None:
        """Keep only the first ``count`` entries. Raises ``OSError``."""
        kept = self.load()[:count]
        if kept:
            os.truncate(self.path, count * _ABORTED_ENTRY.size)
        else:
            self.path.unlink(missing_ok=True)
        self._entries = kept

    def clear(self) -> None:
        """Forget all entries and delete the file, even if it is damaged."""
        self.path.unlink(missing_ok=True)
        self._entries = []

    def flush(self) -> None:
        """Flush the entries to disk. Raises ``OSError``."""
        if self._entries:
            with self.path.open("rb") as file:
                sync_data(file.fileno())
