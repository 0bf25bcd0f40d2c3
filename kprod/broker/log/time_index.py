"""The sparse index from timestamps to offsets of a segment (``.timeindex``)."""

from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path
from typing import Final, NamedTuple

from kprod.broker.log.mapped_entries import MappedEntries

_ENTRY: Final = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """Up to ``offset``, no record of the segment has a larger timestamp (milliseconds)."""

    timestamp: int
    offset: int


class TimeIndex:
    """Entries ``i64 timestamp, i32 relative offset``; timestamps strictly increase.

    The last slot stays free for the entry a segment gets when it is rolled. Threads as for
    ``MappedEntries``. Kafka: TimeIndex.
    """

    def __init__(self, path: Path, base_offset: int) -> None:
        self._base_offset = base_offset
        self.entries = MappedEntries(path, _ENTRY)

    @property
    def full(self) -> bool:
        """Whether only the last slot is left."""
        return self.entries.count >= self.entries.capacity - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry; timestamp -1 at the base offset when there is none."""
        if not self.entries.count:
            return TimestampOffset(-1, self._base_offset)
        timestamp, relative = self.entries[self.entries.count - 1]
        return TimestampOffset(timestamp, self._base_offset + relative)

    @property
    def sane(self) -> bool:
        """Whether size and last entry are possible."""
        whole = self.entries.byte_size % _ENTRY.size == 0
        return whole and self.last.offset >= self._base_offset

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if it says something new: a larger timestamp."""
        if timestamp > self.last.timestamp and self.entries.count < self.entries.capacity:
            self.entries.append(timestamp, offset - self._base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry that is not later than ``timestamp``; -1 at the base offset for none."""
        after = bisect_right(range(self.entries.count), timestamp, key=self._timestamp_at)
        if not after:
            return TimestampOffset(-1, self._base_offset)
        found, relative = self.entries[after - 1]
        return TimestampOffset(found, self._base_offset + relative)

    def _timestamp_at(self, entry: int) -> int:
        timestamp: int = self.entries[entry][0]
        return timestamp
