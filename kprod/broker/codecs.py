"""The four compression codecs of record batches, for reading, with a bound on the result.

Every function takes the compressed bytes and the largest result allowed, in bytes, and raises
``CorruptBatch`` for bytes of another format, for a stream that ends early and for a result beyond
the bound. Memory stays within the bound plus one step of the codec (at most a few MiB).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, TypeAlias

import cramjam
import lz4.frame
import zstandard

from kprod.broker.corrupt_batch import CorruptBatch

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names by codec number, bits 0-2 of a batch's attributes."""

_GZIP_ONLY: Final = zlib.MAX_WBITS | 16
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_ZSTD_MAX_WINDOW: Final = 1 << 27
_ZSTD_STEP: Final = 256


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """The records behind a batch header. ``codec`` is the number in the batch's attributes."""
    if codec >= len(_READERS):
        raise CorruptBatch(f"compression codec {codec} does not exist")
    return _READERS[codec](data, limit)


def _stored(data: bytes, limit: int) -> bytes:
    return data


def _gunzip(data: bytes, limit: int) -> bytes:
    """RFC 1952; several members in a row are one stream, as in Java's GZIPInputStream."""
    parts: list[bytes] = []
    room = limit
    while data:
        member = zlib.decompressobj(_GZIP_ONLY)
        try:
            part = member.decompress(data, room + 1)
        except zlib.error as error:
            raise CorruptBatch(f"gzip: {error}") from error
        room = _take(room, part, "gzip")
        parts.append(part)
        if not member.eof:
            raise CorruptBatch("gzip: the stream ends early")
        data = member.unused_data
    return b"".join(parts)


def _unsnap(data: bytes, limit: int) -> bytes:
    """Xerial's stream of blocks (Java, most clients) or one bare block (librdkafka)."""
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnap_block(data, limit)
    if len(data) < _XERIAL_HEADER_BYTES:
        raise CorruptBatch("snappy: the stream header ends early")
    if data[8:12] != b"\x00\x00\x00\x01":
        raise CorruptBatch("snappy: unknown version of the xerial framing")
    parts: list[bytes] = []
    at = _XERIAL_HEADER_BYTES
    room = limit
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data):
            raise CorruptBatch("snappy: the stream ends inside a block")
        part = _unsnap_block(data[start:at], room)
        room = _take(room, part, "snappy")
        parts.append(part)
    return b"".join(parts)


def _unsnap_block(block: bytes, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise CorruptBatch(f"snappy: more than {limit} bytes when decompressed")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from error


def _unlz4(data: bytes, limit: int) -> bytes:
    """One LZ4 frame with independent blocks: Java's reader refuses linked ones, and so do we."""
    if not data.startswith(_LZ4_MAGIC) or len(data) <= len(_LZ4_MAGIC):
        raise CorruptBatch("lz4: not an LZ4 frame")
    if not data[4] & _LZ4_INDEPENDENT_BLOCKS:
        raise CorruptBatch("lz4: the frame has linked blocks, which Kafka does not read")
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        records: bytes = frame.decompress(data, max_length=limit + 1)
    except (RuntimeError, EOFError) as error:
        raise CorruptBatch(f"lz4: {error}") from error
    _take(limit, records, "lz4")
    if not frame.eof:
        raise CorruptBatch("lz4: the frame ends early")
    return records


def _unzstd(data: bytes, limit: int) -> bytes:
    """One or more zstd frames (RFC 8878) with a window of at most 128 MiB.

    A block of a few bytes can stand for 128 KiB, so the input goes in by small steps and the
    output is counted in between.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    parts: list[bytes] = []
    room = limit
    frame = decompressor.decompressobj()
    fresh = True
    at = 0
    while at < len(data):
        step = data[at : at + _ZSTD_STEP]
        try:
            part = frame.decompress(step)
        except zstandard.ZstdError as error:
            raise CorruptBatch(f"zstd: {error}") from error
        room = _take(room, part, "zstd")
        parts.append(part)
        at += len(step)
        fresh = frame.eof
        if fresh:
            at -= len(frame.unused_data)
            frame = decompressor.decompressobj()
    if not fresh:
        raise CorruptBatch("zstd: the frame ends early")
    return b"".join(parts)


def _take(room: int, part: bytes, name: str) -> int:
    if len(part) > room:
        raise CorruptBatch(f"{name}: more than the {room} bytes allowed when decompressed")
    return room - len(part)


_Reader: TypeAlias = Callable[[bytes, int], bytes]
_READERS: Final[tuple[_Reader, ...]] = (_stored, _gunzip, _unsnap, _unlz4, _unzstd)
