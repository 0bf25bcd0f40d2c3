"""A file of fixed-size entries in mapped memory: what both indexes are."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any


class MappedEntries:
    """Entries one after the other; the file is larger than what is used until ``trim``.

    Entries are added and removed under the partition's lock; reading takes no lock. An entry is
    written before ``count`` covers it and never changes after that, and a mapping that was
    replaced lives on for as long as a reader holds it. An index that never had an entry takes
    neither memory nor a descriptor. Kafka: AbstractIndex; but entries are written by system call,
    as a write to mapped memory on a full disk ends the process.
    """

    def __init__(self, path: Path, layout: struct.Struct) -> None:
        """Open the file with the entries it has; to append, ``grow`` it first."""
        self.path = path
        self._layout = layout
        path.touch(0o644)
        self.byte_size = path.stat().st_size
        self.count = self.capacity = self.byte_size // layout.size
        self._map = _mapped(path, self.byte_size)
        self._fd = -1

    def __getitem__(self, position: int) -> tuple[Any, ...]:
        mapped = self._map
        if mapped is None or not 0 <= position < self.count:
            raise IndexError(position)
        return self._layout.unpack_from(mapped, position * self._layout.size)

    def append(self, *fields: int) -> None:
        """Add one entry; ``IndexError`` when there is no room for it, ``OSError`` on the disk."""
        if self.count >= self.capacity:
            raise IndexError(f"{self.path} is full")
        if self.byte_size < self.capacity * self._layout.size:
            self._resize(self.capacity * self._layout.size)
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        os.pwrite(self._fd, self._layout.pack(*fields), self.count * self._layout.size)
        self.count += 1

    def rename(self, path: Path) -> None:
        """Give the file another name."""
        self._stop_writing()
        self.path.rename(path)
        self.path = path

    def cut(self, count: int) -> None:
        """Forget every entry from the ``count``-th on."""
        self.count = count

    def grow(self, max_bytes: int) -> None:
        """Have room for as many whole entries as fit ``max_bytes``."""
        self.capacity = max_bytes // self._layout.size

    def trim(self) -> None:
        """Cut the file to the entries in use."""
        self.capacity = self.count
        self._resize(self.count * self._layout.size)
        self._stop_writing()

    def _stop_writing(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _resize(self, byte_size: int) -> None:
        os.truncate(self.path, byte_size)
        self.byte_size = byte_size
        self._map = _mapped(self.path, byte_size)

    def flush(self) -> None:
        """Force the entries, and the size of the file, to the disk."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Leave the file as it is; there are no entries to read any more. Idempotent."""
        self.count = self.capacity = 0
        self._map = None
        self._stop_writing()


def _mapped(path: Path, byte_size: int) -> mmap.mmap | None:
    """The file in memory; an empty one cannot be mapped, and has nothing to read."""
    if not byte_size:
        return None
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), byte_size, access=mmap.ACCESS_READ)
