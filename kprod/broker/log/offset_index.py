"""The sparse index from offsets to positions in a segment (``.index``)."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final

from kprod.broker.log.mapped_entries import MappedEntries

_ENTRY: Final = struct.Struct(">ii")


class OffsetIndex:
    """Entries ``i32 relative offset, i32 position``, both strictly increasing.

    An entry holds the last offset of a batch and where that batch starts. Positions are bytes in
    the segment's file. Threads as for ``MappedEntries``. Kafka: OffsetIndex.
    """

    def __init__(self, path: Path, base_offset: int) -> None:
        self._base_offset = base_offset
        self.entries = MappedEntries(path, _ENTRY)

    @property
    def full(self) -> bool:
        """Whether no entry can be added."""
        return self.entries.count >= self.entries.capacity

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset when there is none."""
        return self._offset_at(self.entries.count - 1) if self.entries.count else self._base_offset

    @property
    def sane(self) -> bool:
        """Whether size and last entry are possible. Kafka's check: it reads nothing else."""
        whole = self.entries.byte_size % _ENTRY.size == 0
        return whole and (self.entries.count == 0 or self.last_offset > self._base_offset - 1)

    def append(self, offset: int, position: int) -> None:
        """Add an entry; ``ValueError`` unless ``offset`` is larger than the last one."""
        if self.entries.count and offset <= self.last_offset:
            raise ValueError(f"offset {offset} does not come after {self.last_offset}")
        self.entries.append(offset - self._base_offset, position)

    def lookup(self, offset: int) -> int:
        """The position of the last indexed batch that ends at or before ``offset``; 0 for none."""
        after = bisect_right(range(self.entries.count), offset, key=self._offset_at)
        position: int = self.entries[after - 1][1] if after else 0
        return position

    def offset_before(self, position: int) -> int:
        """The last indexed offset whose batch starts before ``position``; the base for none."""
        after = bisect_right(range(self.entries.count), position, key=lambda n: self.entries[n][1])
        return self._offset_at(after - 1) if after else self._base_offset

    def offset_behind(self, position: int) -> int | None:
        """The first indexed offset whose batch starts at or behind ``position``; None for none."""
        at = bisect_left(range(self.entries.count), position, key=lambda n: self.entries[n][1])
        return self._offset_at(at) if at < self.entries.count else None

    def _offset_at(self, entry: int) -> int:
        relative: int = self.entries[entry][0]
        return self._base_offset + relative
