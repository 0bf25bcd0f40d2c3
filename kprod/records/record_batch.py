"""An independent reader of Kafka's record batch format v2 (KIP-98, KIP-82).

It shares no code with the producer's writer, so that reader and writer share no mistakes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from crc32c import crc32c

from kprod.records.codecs import CorruptBatch, decompressed
from kprod.types import BytesLike, Header


class StoredRecord(NamedTuple):
    """A stored record; ``timestamp`` is in milliseconds since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


_SINGLE_BYTE = 0x80
_INT_BITS = 32
LONG_BITS = 64


def read_varint(data: bytes, at: int, bits: int = _INT_BITS) -> tuple[int, int]:
    """The signed integer of at most ``bits`` bits at ``at``, and the position after it.

    Raises ``CorruptBatch`` for more bits, and ``IndexError`` if the bytes end too early.
    """
    first = data[at]
    if first < _SINGLE_BYTE:
        return (first >> 1) ^ -(first & 1), at + 1
    return _read_long_form(data, at, bits)


def _read_long_form(data: bytes, at: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while shift < bits:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _SINGLE_BYTE:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise CorruptBatch(f"a varint takes more than {bits} bits")


HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

HEADER_BYTES: Final = HEADER.size
LENGTH_PREFIX_BYTES: Final = 12
"""Size of base offset and batch length, which the batch length does not include."""
CRC_START: Final = 21
"""The CRC-32C covers everything from here to the end of the batch."""
MAGIC_AT: Final = 16
MAGIC_V2: Final = 2


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of a batch of format v2 (KIP-98), field by field. All big-endian::

         0 base offset i64          21 attributes i16           43 producer id i64
         8 batch length i32         23 last offset delta i32    51 producer epoch i16
        12 leader epoch i32         27 base timestamp i64       53 base sequence i32
        16 magic i8                 35 max timestamp i64        57 record count i32
        17 CRC-32C u32

    The first three lie outside the CRC: a broker fills them in without touching the rest.
    """

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

    @classmethod
    def parse(cls, data: BytesLike, at: int = 0) -> Self:
        """Read the header at ``at``; raises ``struct.error`` if fewer than 61 bytes are left."""
        return cls(*HEADER.unpack_from(data, at))

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record at the time of writing (compaction may have removed it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether ``max_timestamp``, the broker's append time, is the timestamp of every record."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch contains a marker of a coordinator instead of data."""
        return bool(self.attributes & CONTROL)


_LENGTH: Final = struct.Struct(">8xi")
_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
_LONGEST_VARINT: Final = 5
_LONGEST_HEAD: Final = 1 + 10 + 2 * _LONGEST_VARINT
"""Maximum size of a record's attributes, its deltas of time and offset, and its key length."""


@dataclass(frozen=True, slots=True)
class RecordBatch(BatchHeader):
    """One batch: the header's fields as attributes, and all bytes of the batch in ``data``.

    Immutable. Any thread may use it as long as the underlying bytes are not changed.
    """

    data: memoryview

    @property
    def crc_ok(self) -> bool:
        """Whether the bytes are the ones the CRC was computed over."""
        return crc32c(self.data[CRC_START:]) == self.crc

    def records(
        self, max_bytes: int = _MAX_DECOMPRESSED_BYTES, *, names: str = "replace"
    ) -> Iterator[StoredRecord]:
        """The records in order. Gaps in the offsets are allowed, because compaction leaves them.

        ``names`` is Python's error handler for header names that are not UTF-8. librdkafka sends
        any bytes; Java replaces them. Raises ``CorruptBatch`` for invalid bytes, or if the
        decompressed records have more than ``max_bytes``. The CRC is not checked: see ``crc_ok``.
        """
        window = self._window(max_bytes)
        for _ in range(self.record_count):
            size = window.record_size()
            end = window.need(size) + size
            record, at = self._record(window.data, window.at, names)
            if at != end:
                raise CorruptBatch(f"a record of {size} bytes has fields that end at another place")
            window.at = at
            yield record
        window.end()

    def heads(self, max_bytes: int = _MAX_DECOMPRESSED_BYTES) -> Iterator[RecordHead]:
        """Offset, timestamp and key size of each record, read in constant memory."""
        window = self._window(max_bytes)
        for _ in range(self.record_count):
            size = window.record_size()
            at = window.need(min(size, _LONGEST_HEAD))
            try:
                delta, after = read_varint(window.data, at + 1, LONG_BITS)
                offset_delta, after = read_varint(window.data, after)
                key_size, after = read_varint(window.data, after)
            except IndexError:
                raise CorruptBatch("a record ends early") from None
            if after - at > size:
                raise CorruptBatch(f"a record of {size} bytes has fields that end at another place")
            yield RecordHead(self.base_offset + offset_delta, self._time(delta), key_size)
            window.skip(size)
        window.end()

    def _window(self, max_bytes: int) -> _Window:
        body = bytes(self.data[HEADER_BYTES:])
        return _Window(decompressed(self.codec, body, max_bytes))

    def _time(self, delta: int) -> int:
        return self.max_timestamp if self.is_log_append_time else self.base_timestamp + delta

    def _record(self, data: bytes, at: int, names: str) -> tuple[StoredRecord, int]:
        try:
            delta, at = read_varint(data, at + 1, LONG_BITS)
            offset_delta, at = read_varint(data, at)
            key, at = _read_bytes(data, at)
            value, at = _read_bytes(data, at)
            headers, at = _read_headers(data, at, names)
        except IndexError:
            raise CorruptBatch("a record ends early") from None
        offset = self.base_offset + offset_delta
        return StoredRecord(offset, self._time(delta), key, value, headers), at


class RecordHead(NamedTuple):
    """Offset and timestamp of a record, and the size of its key in bytes (-1 for none)."""

    offset: int
    timestamp: int
    key_size: int


class _Window:
    """A part of the bytes after a header; ``data`` from ``at`` on has not been read yet."""

    __slots__ = ("_pieces", "at", "data")

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.data = b""
        self.at = 0

    def need(self, size: int) -> int:
        """Make ``size`` bytes available, and return their position.

        Raises ``CorruptBatch`` if fewer are left.
        """
        left = len(self.data) - self.at
        if left < size and self._fill(size - left) < size:
            raise CorruptBatch(f"a record claims {size} bytes, {len(self.data)} are left")
        return self.at

    def _fill(self, missing: int) -> int:
        """Read pieces until ``missing`` more bytes are there; return the number of unread bytes."""
        parts = [self.data[self.at :]]
        while missing > 0 and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            missing -= len(piece)
        self.data, self.at = b"".join(parts), 0
        return len(self.data)

    def record_size(self) -> int:
        """Read the length at the beginning of a record."""
        if len(self.data) - self.at < _LONGEST_VARINT:
            self._fill(_LONGEST_VARINT)
        try:
            size, self.at = read_varint(self.data, self.at)
        except IndexError:
            raise CorruptBatch("a record ends early") from None
        if size < 0:
            raise CorruptBatch(f"a record claims {size} bytes")
        return size

    def skip(self, size: int) -> None:
        """Skip ``size`` bytes. Raises ``CorruptBatch`` if fewer are left."""
        while (left := len(self.data) - self.at) < size:
            size -= left
            piece = next(self._pieces, None)
            if piece is None:
                raise CorruptBatch(f"a record ends {size} bytes early")
            self.data, self.at = piece, 0
        self.at += size

    def end(self) -> None:
        """Raise ``CorruptBatch`` unless everything was read, and the stream ended correctly."""
        behind = len(self.data) - self.at + sum(map(len, self._pieces))
        if behind:
            raise CorruptBatch(f"{behind} bytes follow the last record")


def read_batches(data: BytesLike) -> Iterator[RecordBatch]:
    """The batches in ``data``, one after the other; a batch cut off at the end is omitted.

    Raises ``CorruptBatch`` if the bytes are not a batch of format v2. CRCs are not checked.
    """
    view = memoryview(data).toreadonly()
    at = 0
    while len(view) - at > MAGIC_AT:
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


def _read_headers(data: bytes, at: int, names: str) -> tuple[tuple[Header, ...], int]:
    count, at = read_varint(data, at)
    if count == 0:
        return (), at
    if not 0 < count <= len(data) - at:
        raise CorruptBatch(f"a record claims {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        key, at = _read_bytes(data, at)
        value, at = _read_bytes(data, at)
        if key is None:
            raise CorruptBatch("a header has no key")
        headers.append((key.decode(errors=names), value))
    return tuple(headers), at
