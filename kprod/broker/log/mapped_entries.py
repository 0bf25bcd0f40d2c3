"""A file of fixed-size entries in mapped memory: what both indexes are."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any


class MappedEntries:
    """Entries one after the other; the mapping is larger than what is used until ``trim``.

    Entries are added and removed under the partition's lock; reading takes no lock. An entry is
    written before ``count`` covers it and never changes after that, and a mapping that was
    replaced lives on for as long as a reader holds it. Kafka: AbstractIndex.
    """

    def __init__(self, path: Path, layout: struct.Struct) -> None:
        """Open the file with the entries it has; to append, ``grow`` it first."""
        self.path = path
        self._layout = layout
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.byte_size = os.fstat(self._fd).st_size
        self.count = self.byte_size // layout.size
        self._map = self._mapped()

    def _mapped(self) -> mmap.mmap | None:
        # An empty file cannot be mapped, and has nothing to read.
        return mmap.mmap(self._fd, self.byte_size) if self.byte_size else None

    @property
    def capacity(self) -> int:
        """How many entries fit."""
        return self.byte_size // self._layout.size

    def __getitem__(self, position: int) -> tuple[Any, ...]:
        mapped = self._map
        if mapped is None or not 0 <= position < self.count:
            raise IndexError(position)
        return self._layout.unpack_from(mapped, position * self._layout.size)

    def append(self, *fields: int) -> None:
        """Add one entry; ``IndexError`` when there is no room for it."""
        if self._map is None or self.count >= self.capacity:
            raise IndexError(f"{self.path} is full")
        self._layout.pack_into(self._map, self.count * self._layout.size, *fields)
        self.count += 1

    def clear(self) -> None:
        """Forget every entry."""
        self.count = 0

    def grow(self, max_bytes: int) -> None:
        """Make room for as many whole entries as fit ``max_bytes``."""
        self._resize(max_bytes - max_bytes % self._layout.size)

    def trim(self) -> None:
        """Cut the file to the entries in use."""
        self._resize(self.count * self._layout.size)

    def _resize(self, byte_size: int) -> None:
        os.ftruncate(self._fd, byte_size)
        self.byte_size = byte_size
        self._map = self._mapped()

    def flush(self) -> None:
        """Force the entries to the disk."""
        if self._map is not None:
            self._map.flush()

    def close(self) -> None:
        """Leave the file as it is; there are no entries to read any more. Idempotent."""
        self.count = 0
        self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
