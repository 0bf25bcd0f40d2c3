"""Records that an application gathers itself, as aiokafka's BatchBuilder"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kprod.clock import SystemClock

OVERHEAD = 61
"""Bytes of a batch before its first record."""
PER_RECORD = 21
"""Bytes a record takes at most besides its key, value and headers."""


class BatchRecord(NamedTuple):
    """One record of a batch."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes]]


class AppendedRecord(NamedTuple):
    """What is known of a record in a batch: its place there, its size in bytes, its timestamp."""

    offset: int
    size: int
    timestamp: int


class RecordBatch:
    """Takes records until they would not fit into ``batch_size`` bytes. For one task."""

    def __init__(self, batch_size: int) -> None:
        self.records: list[BatchRecord] = []
        self._batch_size = batch_size
        self._size = OVERHEAD
        self._closed = False

    def append(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> AppendedRecord | None:
        """Add a record; None when it does not fit, or the batch is closed."""
        size = PER_RECORD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(data) + 10 for name, data in headers)
        too_large = self.records and self._size + size > self._batch_size
        if self._closed or too_large:
            return None
        stamp = SystemClock().wall_ms() if timestamp is None else timestamp
        self.records.append(BatchRecord(key, value, stamp, headers))
        self._size += size
        return AppendedRecord(len(self.records) - 1, size, stamp)

    def record_count(self) -> int:
        """How many records there are."""
        return len(self.records)

    def size(self) -> int:
        """Bytes, at most, before compression."""
        return self._size

    def close(self) -> None:
        """Take no more records."""
        self._closed = True
