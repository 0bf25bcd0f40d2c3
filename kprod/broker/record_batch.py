"""An independent reader of Kafka's record batch format v2 (KIP-98, KIP-82).

It shares no code with the writer on the producing side, so that a mistake is not made twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from kprod.broker.batch_header import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
)
from kprod.broker.codecs import decompress
from kprod.broker.corrupt_batch import CorruptBatch
from kprod.broker.stored_record import StoredRecord
from kprod.broker.varint import read_varint, read_varlong
from kprod.types import BytesLike, Header

__all__ = ["CorruptBatch", "RecordBatch", "StoredRecord", "read_batches"]

_LENGTH: Final = struct.Struct(">8xi")
_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecordBatch(BatchHeader):
    """One batch: the fields of its header under their names, and all its bytes as ``data``.

    Immutable, so any thread may use it while the bytes it was read from are left alone.
    """

    data: memoryview

    @property
    def crc_ok(self) -> bool:
        """Whether the bytes are the ones the CRC was computed over."""
        return crc32c(self.data[CRC_START:]) == self.crc

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
        if view[at + MAGIC_AT] != MAGIC_V2:
            raise CorruptBatch(f"magic {view[at + MAGIC_AT]} is not a batch of format v2")
        if end > len(view):
            return
        batch = RecordBatch(*(*HEADER.unpack_from(view, at), view[at:end]))
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
