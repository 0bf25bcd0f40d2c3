"""The four compression codecs of record batches, for reading, with a limit on the size.

The result is decompressed in pieces of at most a few MiB, so that memory use does not depend on the
size that the data claims. Only a bare snappy block is decompressed in one piece, which is at most
22 times as long as the block.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import lz4.frame
import zstandard

from kprod.errors import ConfigError, KprodError

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names by codec number, bits 0-2 of a batch's attributes."""

_GZIP_ONLY: Final = zlib.MAX_WBITS | 16
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_ZSTD_MAX_WINDOW: Final = 1 << 27
_ZSTD_STEP: Final = 64
_PIECE: Final = 256 * 1024
_SNAPPY_RATIO: Final = 22
"""An element of the format decompresses to at most this many times its own size."""


class CorruptBatch(KprodError, ValueError, number="KP-4002"):
    """The bytes are not a valid record batch."""


class BatchTooLarge(CorruptBatch, number="KP-4003"):
    """The decompressed records are larger than the reader allows."""


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """The result of ``decompressed`` in one piece."""
    return b"".join(decompressed(codec, data, limit))


def decompressed(codec: int, data: bytes, limit: int) -> Iterator[bytes]:
    """Decompress the records after a batch header, in pieces.

    ``codec`` is bits 0-2 of the batch's attributes. Raises ``CorruptBatch`` for bytes of another
    format and for a stream that ends early, ``BatchTooLarge`` for a result of more than ``limit``
    bytes, and ``ConfigError`` for snappy if cramjam is not installed.
    """
    if codec >= len(_READERS):
        raise CorruptBatch(f"compression codec {codec} does not exist")
    room = limit
    for piece in _READERS[codec](data, limit):
        room -= len(piece)
        if codec and room < 0:
            raise _too_large(codec, limit)
        yield piece


def _too_large(codec: int, limit: int) -> BatchTooLarge:
    return BatchTooLarge(f"{CODEC_NAMES[codec]}: more than {limit} bytes when decompressed")


def _stored(data: bytes, _: int) -> Iterator[bytes]:
    yield data


def _gunzip(data: bytes, _: int) -> Iterator[bytes]:
    """RFC 1952. Consecutive members are one stream, as in Java's GZIPInputStream."""
    while data:
        member = zlib.decompressobj(_GZIP_ONLY)
        while not member.eof:
            try:
                piece = member.decompress(data, _PIECE)
            except zlib.error as error:
                raise CorruptBatch(f"gzip: {error}") from error
            data = member.unconsumed_tail
            if not piece and not member.eof:
                raise CorruptBatch("gzip: the stream ends early")
            yield piece
        data = member.unused_data


def _unsnap(data: bytes, limit: int) -> Iterator[bytes]:
    """Xerial's stream of blocks (Java, most clients) or a single bare block (librdkafka)."""
    if not data.startswith(_XERIAL_MAGIC):
        yield _unsnap_block(data, limit)
        return
    if len(data) < _XERIAL_HEADER_BYTES:
        raise CorruptBatch("snappy: the stream header ends early")
    if data[8:12] != b"\x00\x00\x00\x01":
        raise CorruptBatch("snappy: unknown version of the xerial framing")
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data):
            raise CorruptBatch("snappy: the stream ends inside a block")
        yield _unsnap_block(data[start:at], limit)


def _unsnap_block(block: bytes, limit: int) -> bytes:
    try:
        import cramjam
    except ImportError:
        raise ConfigError(
            "the records are compressed by snappy, and reading them needs cramjam:"
            " pip install 'kprod[snappy]'"
        ) from None
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_RATIO:
            raise CorruptBatch(f"snappy: {len(block)} bytes claim to be {size}")
        if size > limit:
            raise _too_large(CODEC_NAMES.index("snappy"), limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from error


def _unlz4(data: bytes, _: int) -> Iterator[bytes]:
    """One LZ4 frame with independent blocks; linked blocks are rejected, as by Java's reader."""
    if not data.startswith(_LZ4_MAGIC) or len(data) <= len(_LZ4_MAGIC):
        raise CorruptBatch("lz4: not an LZ4 frame")
    if not data[4] & _LZ4_INDEPENDENT_BLOCKS:
        raise CorruptBatch("lz4: the frame has linked blocks, which Kafka does not read")
    frame = lz4.frame.LZ4FrameDecompressor()
    while not frame.eof:
        try:
            piece = frame.decompress(data, max_length=_PIECE)
        except (RuntimeError, EOFError) as error:
            raise CorruptBatch(f"lz4: {error}") from error
        data = b""
        if not piece and not frame.eof:
            raise CorruptBatch("lz4: the frame ends early")
        yield piece


def _unzstd(data: bytes, _: int) -> Iterator[bytes]:
    """One or more zstd frames (RFC 8878) with a window of at most 128 MiB.

    A block of four bytes may decompress to 128 KiB, so the input is passed in small steps.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    frame = decompressor.decompressobj()
    fresh = True
    at = 0
    while at < len(data):
        step = data[at : at + _ZSTD_STEP]
        try:
            piece = frame.decompress(step)
        except zstandard.ZstdError as error:
            raise CorruptBatch(f"zstd: {error}") from error
        yield piece
        at += len(step)
        fresh = frame.eof
        if fresh:
            at -= len(frame.unused_data)
            frame = decompressor.decompressobj()
    if not fresh:
        raise CorruptBatch("zstd: the frame ends early")


_Reader: TypeAlias = Callable[[bytes, int], Iterator[bytes]]
_READERS: Final[tuple[_Reader, ...]] = (_stored, _gunzip, _unsnap, _unlz4, _unzstd)
