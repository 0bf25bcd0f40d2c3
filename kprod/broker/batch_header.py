"""The first 61 bytes of a record batch, which are all that storing it takes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Self

from kprod.types import BytesLike

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

HEADER_BYTES: Final = HEADER.size
LENGTH_PREFIX_BYTES: Final = 12
"""Base offset and batch length, which the batch length does not count."""
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
        """Read the header at ``at``; ``struct.error`` when fewer than 61 bytes are left."""
        return cls(*HEADER.unpack_from(data, at))

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record the batch had when written (compaction may have removed it)."""
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
        """Whether the batch holds a marker of a coordinator rather than data."""
        return bool(self.attributes & CONTROL)
