"""Reads messages of the formats 0 and 1, which brokers before 0.11 wrote."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from kprod.records.codecs import CODEC_NAMES, CorruptBatch, decompress
from kprod.records.record_batch import (
    LENGTH_PREFIX_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
    RecordBatch,
    RecordHead,
    StoredRecord,
    read_batches,
)
from kprod.types import BytesLike

_ENTRY: Final = struct.Struct(">qiIbb")
_TIME: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_SIZE_AT: Final = 8
_CRC_START: Final = 16
_SMALLEST: Final = 14
_ZSTD: Final = CODEC_NAMES.index("zstd")
_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LegacyMessage:
    """One message, or a wrapper with a compressed set of messages as its value::

        0 offset i64     12 CRC-32 u32 (of all bytes after it)      18 timestamp i64 (format 1)
        8 size i32       16 magic i8, 17 attributes i8              then key and value, i32 lengths

    The offset of a wrapper is that of its last message. The messages inside have relative offsets
    from 0 in format 1, and their own offsets in format 0. A LegacyMessage is used like a batch
    without producer and leader epoch, which these formats do not have.
    """

    offset: int
    crc: int
    magic: int
    attributes: int
    data: memoryview

    is_control = False
    is_transactional = False
    producer_id = -1
    producer_epoch = -1
    partition_leader_epoch = -1

    @classmethod
    def parse(cls, data: memoryview) -> Self:
        """The message that ``data`` holds from its first to its last byte."""
        offset, _, crc, magic, attributes = _ENTRY.unpack_from(data)
        return cls(offset, crc, magic, attributes, data)

    @property
    def size(self) -> int:
        """Size of the whole entry in bytes."""
        return len(self.data)

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4."""
        return self.attributes & _CODEC_MASK

    @property
    def last_offset(self) -> int:
        """The offset of the last message."""
        return self.offset

    @property
    def base_offset(self) -> int:
        """The offset of the first message; of the last one if messages inside cannot be read."""
        if not self.codec:
            return self.offset
        try:
            return next(self.records()).offset
        except CorruptBatch:
            return self.offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, which is that of the wrapper; -1 in format 0, which has none."""
        timestamp: int = _TIME.unpack_from(self.data, _ENTRY.size)[0] if self.magic else -1
        return timestamp

    @property
    def crc_ok(self) -> bool:
        """Whether the bytes are the ones the CRC was computed over."""
        return zlib.crc32(self.data[_CRC_START:]) == self.crc

    def records(self, max_bytes: int = _MAX_DECOMPRESSED_BYTES) -> Iterator[StoredRecord]:
        """The messages as records. Raises ``CorruptBatch``."""
        timestamp, key, value = self._fields()
        if not self.codec:
            yield StoredRecord(self.offset, timestamp, key, value, ())
            return
        if self.codec >= _ZSTD:
            raise CorruptBatch(f"a message of format {self.magic} with codec {self.codec}")
        inner = [
            entry
            for entry in read_sets(decompress(self.codec, value or b"", max_bytes))
            if isinstance(entry, LegacyMessage)
        ]
        if not inner or any(entry.codec or entry.magic != self.magic for entry in inner):
            raise CorruptBatch("a compressed message holds no plain messages of its own format")
        first = self.offset - inner[-1].offset if self.magic else 0
        for entry in inner:
            for record in entry.records():
                stamped = timestamp if self.attributes & _LOG_APPEND_TIME else record.timestamp
                yield record._replace(offset=record.offset + first, timestamp=stamped)

    def heads(self) -> Iterator[RecordHead]:
        """Offset, timestamp and key size of each message."""
        for record in self.records():
            key_size = -1 if record.key is None else len(record.key)
            yield RecordHead(record.offset, record.timestamp, key_size)

    def header_as_v2(self, records: list[StoredRecord]) -> BatchHeader:
        """A header of format v2 for these records of the message; its CRC and size are 0."""
        first, last = records[0], records[-1]
        span = last.offset - first.offset
        times = (first.timestamp, self.max_timestamp)
        sender = (self.producer_id, self.producer_epoch, -1)
        epoch = self.partition_leader_epoch
        start = (first.offset, 0, epoch, MAGIC_V2, 0)
        return BatchHeader(*start, self.attributes, span, *times, *sender, len(records))

    def _fields(self) -> tuple[int, bytes | None, bytes | None]:
        at, timestamp = _ENTRY.size, -1
        try:
            if self.magic:
                (timestamp,) = _TIME.unpack_from(self.data, at)
                at += _TIME.size
            key, at = self._field(at)
            value, at = self._field(at)
        except struct.error:
            raise CorruptBatch("a message ends early") from None
        if at != len(self.data):
            raise CorruptBatch(f"{len(self.data) - at} bytes follow the fields of a message")
        return timestamp, key, value

    def _field(self, at: int) -> tuple[bytes | None, int]:
        (length,) = _LENGTH.unpack_from(self.data, at)
        start = at + _LENGTH.size
        if length < 0:
            return None, start
        if start + length > len(self.data):
            raise CorruptBatch(f"a field claims {length} bytes")
        return bytes(self.data[start : start + length]), start + length


StoredBatch: TypeAlias = RecordBatch | LegacyMessage
"""A batch that a log may contain, with all its bytes."""
StoredHeader: TypeAlias = BatchHeader | LegacyMessage
"""The part of a stored batch that is needed to find it."""


def legacy_size(data: BytesLike, at: int = 0) -> int:
    """Size of the message (format 0 or 1) at ``at``. Raises ``CorruptBatch`` if it is invalid."""
    (length,) = _LENGTH.unpack_from(data, at + _SIZE_AT)
    if length < _SMALLEST:
        raise CorruptBatch(f"a message claims a length of {length}")
    return LENGTH_PREFIX_BYTES + int(length)


def read_sets(data: BytesLike) -> Iterator[StoredBatch]:
    """All batches in ``data``, of any format; a batch that is cut off at the end is omitted.

    Raises ``CorruptBatch`` if the bytes match no format. CRCs are not checked.
    """
    view = memoryview(data).toreadonly()
    at = 0
    while len(view) - at > MAGIC_AT:
        end = at + legacy_size(view, at)
        if end > len(view):
            return
        if view[at + MAGIC_AT] < MAGIC_V2:
            yield LegacyMessage.parse(view[at:end])
        else:
            yield from read_batches(view[at:end])
        at = end
