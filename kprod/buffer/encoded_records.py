"""Reading back the records of a batch of our own, when it must be cut in two.

Layout: ``DefaultRecord`` in Kafka. The bytes are the ones this process wrote and still holds, so
nothing is checked here; what others send us is never read by this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kprod.types import Header
from kprod_ext.batch import RECORD_OVERHEAD


class EncodedRecord(NamedTuple):
    """One record, and the bytes it takes at most wherever it is written again."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    size_bound: int


def read_records(encoded: memoryview, base_timestamp: int) -> Iterator[EncodedRecord]:
    """The records in order; ``encoded`` is the uncompressed records part of a batch."""
    cursor = _Cursor(encoded)
    while cursor.at < len(encoded):
        length = cursor.varint()
        cursor.at += 1  # attributes, always 0
        timestamp = base_timestamp + cursor.varint()
        cursor.varint()  # offset delta: its place in the batch
        key, value = cursor.sized(), cursor.sized()
        headers = tuple(
            (str(cursor.sized() or b"", "utf-8"), cursor.sized()) for _ in range(cursor.varint())
        )
        yield EncodedRecord(timestamp, key, value, headers, length + RECORD_OVERHEAD)


class _Cursor:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def varint(self) -> int:
        """A zigzag varint (Protocol Buffers encoding)."""
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def sized(self) -> bytes | None:
        """Bytes behind their length; None for length -1."""
        size = self.varint()
        if size < 0:
            return None
        self.at += size
        return bytes(self._data[self.at - size : self.at])
