"""An independent reader of Kafka's record batch format v2 (KIP-98, KIP-82).

The 61 bytes in front of the records, all big-endian::

     0 base offset i64          21 attributes i16           43 producer id i64
     8 batch length i32         23 last offset delta i32    51 producer epoch i16
    12 leader epoch i32         27 base timestamp i64       53 base sequence i32
    16 magic i8                 35 max timestamp i64        57 record count i32
    17 CRC-32C u32 of byte 21 to the end

It shares no code with the writer on the producing side, so that a mistake is not made twice. The
first three fields lie outside the CRC: a broker fills them in without touching the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from kprod.broker.codecs import decompress
from kprod.broker.corrupt_batch import CorruptBatch
from kprod.broker.stored_record import StoredRecord
from kprod.broker.varint import read_varint, read_varlong
from kprod.types import BytesLike, Header

__all__ = ["HEADER_BYTES", "CorruptBatch", "RecordBatch", "StoredRecord", "read_batches"]

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_PREFIX_BYTES: Final = 12
"""Base offset and batch length, which the batch length does not count."""

_CRC_START: Final = 21
_LENGTH: Final = struct.Struct(">8xi")
_MAGIC_AT: Final = 16
_MAGIC_V2: Final = 2
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch: the fields of its header under their names, and the bytes they were read from.

    ``data`` is the whole batch. Immutable, so any thread may use it while ``data`` is left alone.
    """

    data: memoryview
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record the batch had when written (compaction may have removed it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def crc_ok(self) -> bool:
        """Whether the bytes are the ones the CRC was computed over."""
        return crc32c(self.data[_CRC_START:]) == self.crc

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether ``max_timestamp``, the broker's append time, is the timestamp of every record."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker of a coordinator rather than data."""
        return bool(self.attributes & _CONTROL)

    def records(self, max_bytes: int = _MAX_DECOMPRESSED_BYTES) -> Iterator[StoredRecord]:
        """The records in order; gaps in the offsets are allowed, as compaction leaves them.

        Raises ``CorruptBatch`` for bad bytes and for records of more than ``max_bytes`` when
        decompressed. The CRC is not looked at: see ``crc_ok``.
        """
        data = decompress(self.codec, bytes(self.data[HEADER_BYTES:]), max_bytes)
        at = 0
        for _ in range(self.record_count):
            record, at = self._record(data, at)
            yield record
        if at != len(data):
            raise CorruptBatch(f"{len(data) - at} bytes follow the last record")

    def _record(self, data: bytes, at: int) -> tuple[StoredRecord, int]:
        try:
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > len(data):
                raise CorruptBatch(f"a record claims {length} bytes, {len(data) - at} are left")
            delta, at = read_varlong(data, at + 1)
            offset_delta, at = read_varint(data, at)
            key, at = _read_bytes(data, at)
            value, at = _read_bytes(data, at)
            headers, at = _read_headers(data, at)
        except IndexError:
            raise CorruptBatch("a record ends early") from None
        if at != end:
            raise CorruptBatch(f"a record of {length} bytes has fields that end at another place")
        timestamp = self.max_timestamp if self.is_log_append_time else self.base_timestamp + delta
        return StoredRecord(self.base_offset + offset_delta, timestamp, key, value, headers), at


def read_batches(data: BytesLike) -> Iterator[RecordBatch]:
    """The batches in ``data``, one after the other; a batch cut off at the end is left out.

    Raises ``CorruptBatch`` where the bytes cannot be a batch of format v2. CRCs are not checked.
    """
    view = memoryview(data).toreadonly()
    at = 0
    while len(view) - at >= HEADER_BYTES:
        (length,) = _LENGTH.unpack_from(view, at)
        end = at + LENGTH_PREFIX_BYTES + length
        if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            raise CorruptBatch(f"a batch claims a length of {length}")
        if view[at + _MAGIC_AT] != _MAGIC_V2:
            raise CorruptBatch(f"magic {view[at + _MAGIC_AT]} is not a batch of format v2")
        if end > len(view):
            return
        batch = RecordBatch(view[at:end], *HEADER.unpack_from(view, at))
        if batch.record_count < 0:
            raise CorruptBatch(f"a batch claims {batch.record_count} records")
        yield batch
        at = end


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"a field claims {length} bytes")
        return None, at
    end = at + length
    if end > len(data):
        raise CorruptBatch(f"a field claims {length} bytes, {len(data) - at} are left")
    return data[at:end], end


def _read_headers(data: bytes, at: int) -> tuple[tuple[Header, ...], int]:
    count, at = read_varint(data, at)
    if count == 0:
        return (), at
    if not 0 < count <= len(data) - at:
        raise CorruptBatch(f"a record claims {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        key, at = _read_bytes(data, at)
        value, at = _read_bytes(data, at)
        headers.append((_header_key(key), value))
    return tuple(headers), at


def _header_key(key: bytes | None) -> str:
    if key is None:
        raise CorruptBatch("a header has no key")
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise CorruptBatch(f"header key {key!r} is not UTF-8") from None
