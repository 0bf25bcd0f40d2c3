"""Messages of the formats 0 and 1, as brokers before 0.11 wrote them; read only."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kprod.broker.batch_header import LENGTH_PREFIX_BYTES, MAGIC_AT, MAGIC_V2
from kprod.broker.codecs import CODEC_NAMES, decompress
from kprod.broker.corrupt_batch import CorruptBatch
from kprod.broker.record_batch import RecordBatch, read_batches
from kprod.broker.stored_record import StoredRecord
from kprod.types import BytesLike

_ENTRY: Final = struct.Struct(">qiIbb")
_TIME: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CRC_START: Final = 16
_SMALLEST: Final = 14
_ZSTD: Final = CODEC_NAMES.index("zstd")
_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LegacyMessage:
    """One message, or a wrapper whose value is a compressed set of messages::

        0 offset i64     12 CRC-32 u32 (of everything behind it)   18 timestamp i64 (format 1)
        8 size i32       16 magic i8, 17 attributes i8             then key and value, i32 lengths

    The offset of a wrapper is that of its last message. In format 1 the messages inside count
    from 0, in format 0 they have their own offsets.
    """

    offset: int
    crc: int
    magic: int
    attributes: int
    data: memoryview

    is_control = False
    is_transactional = False

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
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
        """The offset of the first message."""
        return next((record.offset for record in self.records()), self.offset)

    @property
    def crc_ok(self) -> bool:
        """Whether the bytes are the ones the CRC was computed over."""
        return zlib.crc32(self.data[_CRC_START:]) == self.crc

    def records(self, max_bytes: int = _MAX_DECOMPRESSED_BYTES) -> Iterator[StoredRecord]:
        """The messages, the older form of records. Raises ``CorruptBatch``."""
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


def read_sets(data: BytesLike) -> Iterator[RecordBatch | LegacyMessage]:
    """Everything in ``data`` by whichever format it is; what is cut off at the end is left out.

    Raises ``CorruptBatch`` where the bytes can be no format. CRCs are not checked.
    """
    view = memoryview(data).toreadonly()
    at = 0
    while len(view) - at > MAGIC_AT:
        (length,) = _LENGTH.unpack_from(view, at + 8)
        end = at + LENGTH_PREFIX_BYTES + length
        if length < _SMALLEST:
            raise CorruptBatch(f"a message claims a length of {length}")
        if end > len(view):
            return
        if view[at + MAGIC_AT] < MAGIC_V2:
            offset, _, crc, magic, attributes = _ENTRY.unpack_from(view, at)
            yield LegacyMessage(offset, crc, magic, attributes, view[at:end])
        else:
            yield from read_batches(view[at:end])
        at = end
