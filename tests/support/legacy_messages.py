"""Messages of formats 0 and 1, built with struct, as stored by brokers before 0.11."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import cramjam
import lz4.frame

CODECS: Final = ("none", "gzip", "snappy", "lz4")
"""Names by codec number, without zstd, which these formats lack."""


def _xerial(data: bytes) -> bytes:
    """One block after the stream header of Java's snappy library."""
    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


_COMPRESS: Final[tuple[Callable[[bytes], bytes], ...]] = (
    bytes,
    gzip.compress,
    _xerial,
    lambda data: lz4.frame.compress(data, block_linked=False),
)


def legacy_message(
    offset: int,
    value: bytes | None,
    magic: int = 1,
    *,
    key: bytes | None = b"k",
    timestamp: int | None = None,
    attributes: int = 0,
) -> bytes:
    """One message; its timestamp is by default its offset, and none in format 0."""
    time = struct.pack(">q", offset if timestamp is None else timestamp) if magic else b""
    checked = struct.pack(">bb", magic, attributes) + time + _field(key) + _field(value)
    return struct.pack(">qiI", offset, 4 + len(checked), zlib.crc32(checked)) + checked


def _field(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def legacy_wrapper(
    first: int,
    values: Sequence[bytes | None],
    magic: int = 1,
    codec: int = 1,
    *,
    keys: Sequence[bytes | None] = (),
    timestamp: int | None = None,
) -> bytes:
    """A message that contains others, compressed, from offset ``first`` on."""
    start = 0 if magic else first
    inside = b"".join(
        legacy_message(
            start + n,
            value,
            magic,
            key=keys[n] if keys else b"k",
            timestamp=first + n if timestamp is None else timestamp,
        )
        for n, value in enumerate(values)
    )
    last = first + len(values) - 1
    packed = _COMPRESS[codec](inside)
    return legacy_message(last, packed, magic, key=None, timestamp=timestamp, attributes=codec)
