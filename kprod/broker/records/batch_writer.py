"""Batches that the broker writes: its own records, what compaction keeps, and markers."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Final, NamedTuple

import cramjam
import lz4.frame
import zstandard
from crc32c import crc32c

from kprod.records.codecs import CorruptBatch
from kprod.records.legacy_message import StoredBatch
from kprod.records.record_batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    TRANSACTIONAL,
    BatchHeader,
    StoredRecord,
)

_CODEC_MASK: Final = 0x07
_NO_SEQUENCE: Final = -1
_fields: Final = attrgetter(*(field.name for field in fields(BatchHeader)))


def write_batch(
    records: Iterable[tuple[bytes | None, bytes | None]],
    timestamp: int,
    attributes: int = 0,
    producer: tuple[int, int] = (-1, -1),
) -> bytes:
    """Return an uncompressed batch of ``records``, which are pairs of key and value.

    All records have the same ``timestamp`` (milliseconds); their offsets begin at 0. For a batch in
    a transaction, ``producer`` is the producer's id and epoch. The batch has no sequence number,
    because the broker never resends it.
    """
    stored = [
        StoredRecord(offset, timestamp, key, value, ())
        for offset, (key, value) in enumerate(records)
    ]
    body = b"".join(_record(record, 0, timestamp) for record in stored)
    count = len(stored)
    sender = (*producer, _NO_SEQUENCE)
    times = (timestamp, timestamp)
    header = BatchHeader(0, 0, 0, MAGIC_V2, 0, attributes, count - 1, *times, *sender, count)
    return seal(header, body)


def rewrite_batch(header: BatchHeader, kept: list[StoredRecord], attributes: int) -> bytes:
    """Return a batch with only the records that were ``kept``. The codec is in ``attributes``.

    Base offset, last offset, producer and sequence numbers of the batch stay the same. So the
    producer's last sequence number is still known, and readers continue at the same offset after
    the batch (Kafka: MemoryRecords.filterTo).
    """
    body = b"".join(_record(r, header.base_offset, header.base_timestamp) for r in kept)
    compressed = _COMPRESS[attributes & _CODEC_MASK](body)
    latest = max((record.timestamp for record in kept), default=header.max_timestamp)
    rewritten = replace(
        header,
        attributes=attributes,
        max_timestamp=header.max_timestamp if header.is_log_append_time else latest,
        record_count=len(kept),
    )
    return seal(rewritten, compressed)


def seal(header: BatchHeader, body: bytes) -> bytes:
    """Return the batch of a header and a body, with the right size and CRC."""
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    base_offset, _, leader_epoch, magic, _, *rest = _fields(header)
    start = (base_offset, length, leader_epoch, magic)
    checked = HEADER.pack(*start, 0, *rest)[CRC_START:] + body
    return HEADER.pack(*start, crc32c(checked), *rest)[:CRC_START] + checked


def _record(record: StoredRecord, base_offset: int, base_timestamp: int) -> bytes:
    fields = bytearray(b"\0")  # attributes, none of which is defined
    fields += varint(record.timestamp - base_timestamp)
    fields += varint(record.offset - base_offset)
    for field in (record.key, record.value):
        fields += _field(field)
    fields += varint(len(record.headers))
    for name, value in record.headers:
        fields += _field(name.encode(errors="surrogateescape"))
        fields += _field(value)
    return varint(len(fields)) + bytes(fields)


def _field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def varint(value: int) -> bytes:
    """Encode a signed integer of up to 64 bits as a zigzag varint."""
    zigzag = (value << 1) ^ (value >> 63)
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    found.append(zigzag)
    return bytes(found)


def _xerial(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + len(block).to_bytes(4, "big") + block


def _lz4(data: bytes) -> bytes:
    found: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    return found


_COMPRESS: Final[tuple[Callable[[bytes], bytes], ...]] = (
    lambda data: data,
    gzip.compress,
    _xerial,
    _lz4,
    lambda data: zstandard.ZstdCompressor().compress(data),
)


_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


class TransactionMarker(NamedTuple):
    """How a producer's transaction has ended, and which coordinator has ended it.

    ``coordinator_epoch`` is the leader epoch of the coordinator's partition of
    ``__transaction_state``.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def write_marker(marker: TransactionMarker, now_ms: int) -> bytes:
    """Return a control batch with the marker (Kafka: EndTransactionMarker).

    Its key is ``i16 0, i16 kind``, its value ``i16 0, i32 coordinator epoch``.
    """
    key = _KEY.pack(_VERSION, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    producer = (marker.producer_id, marker.producer_epoch)
    return write_batch([(key, value)], now_ms, TRANSACTIONAL | CONTROL, producer)


def read_marker(batch: StoredBatch) -> TransactionMarker | None:
    """Return the marker in a control batch; None if the batch is empty or of another kind.

    Raises ``CorruptBatch`` if the control record is incomplete.
    """
    for record in batch.records():
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind not in (_ABORT, _COMMIT):
                return None
            _, epoch = _VALUE.unpack_from(record.value or b"")
        except struct.error:
            raise CorruptBatch(f"the control record at offset {record.offset} ends early") from None
        return TransactionMarker(batch.producer_id, batch.producer_epoch, kind == _COMMIT, epoch)
    return None
