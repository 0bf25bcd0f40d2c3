"""Decompression: accepted formats, and the limit of the result."""

from __future__ import annotations

import gzip
import struct
import sys

import cramjam
import lz4.frame
import pytest
import zstandard

from kprod.errors import ConfigError
from kprod.records.codecs import CODEC_NAMES, CorruptBatch, decompress

GZIP, SNAPPY, LZ4, ZSTD = range(1, 5)
DATA = b"the same again and again " * 4000
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def xerial(data: bytes, chunk: int = 32 * 1024) -> bytes:
    blocks = (
        bytes(cramjam.snappy.compress_raw(data[at : at + chunk]))
        for at in range(0, len(data), chunk)
    )
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def lz4_frame(data: bytes, **options: object) -> bytes:
    frame: bytes = lz4.frame.compress(data, **{"block_linked": False, **options})
    return frame


COMPRESSED = {
    "gzip": (GZIP, gzip.compress(DATA)),
    "gzip, two members": (GZIP, gzip.compress(DATA[:1000]) + gzip.compress(DATA[1000:])),
    "snappy, bare block": (SNAPPY, bytes(cramjam.snappy.compress_raw(DATA))),
    "snappy, xerial": (SNAPPY, xerial(DATA)),
    "lz4": (LZ4, lz4_frame(DATA)),
    "lz4, all checksums": (LZ4, lz4_frame(DATA, content_checksum=True, block_checksum=True)),
    "lz4, content size": (LZ4, lz4_frame(DATA, store_size=True)),
    "zstd": (ZSTD, zstandard.ZstdCompressor().compress(DATA)),
    "zstd, no content size": (
        ZSTD,
        zstandard.ZstdCompressor(write_content_size=False).compress(DATA),
    ),
    "zstd, two frames": (
        ZSTD,
        zstandard.ZstdCompressor().compress(DATA[:7])
        + zstandard.ZstdCompressor().compress(DATA[7:]),
    ),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_data_is_decompressed_up_to_the_limit(name: str) -> None:
    codec, data = COMPRESSED[name]
    assert decompress(codec, data, len(DATA)) == DATA
    with pytest.raises(CorruptBatch, match=f"{CODEC_NAMES[codec]}: more than"):
        decompress(codec, data, len(DATA) - 1)


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_truncated_stream_never_decompresses_to_the_whole(name: str) -> None:
    codec, data = COMPRESSED[name]
    for cut in range(0, len(data), max(1, len(data) // 60)):
        try:
            found = decompress(codec, data[:cut], len(DATA))
        except CorruptBatch:
            continue
        assert found != DATA


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (5, b""),
        (7, b"x"),
        (GZIP, b"not gzip at all"),
        (GZIP, gzip.compress(b"x", mtime=0) + b"trailing"),
        (SNAPPY, b""),
        (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 10),
        (SNAPPY, XERIAL[:12]),
        (SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">ii", 2, 1)),
        (SNAPPY, XERIAL + struct.pack(">i", 1000) + b"short"),
        (SNAPPY, XERIAL + struct.pack(">i", -1)),
        (SNAPPY, XERIAL + b"\0\0"),
        (LZ4, b""),
        (LZ4, b"\x02\x21\x4c\x18" + b"legacy frame"),
        (LZ4, lz4_frame(DATA)[:5] + b"\x00" + lz4_frame(DATA)[6:]),
        (LZ4, lz4.frame.compress(DATA * 4, block_linked=True)),
        (ZSTD, b"not zstd at all"),
        (ZSTD, bytes.fromhex("28b52ffd 00 f8 0100 00")),
    ],
)
def test_bytes_of_another_format_are_refused(codec: int, data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, data, 1 << 20)


def test_snappy_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)  # makes its import fail
    with pytest.raises(ConfigError, match=r"pip install 'kprod\[snappy\]'"):
        decompress(*COMPRESSED["snappy, xerial"], len(DATA))
