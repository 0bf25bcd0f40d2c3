"""Compressed batches: what an independent reader makes of them, and how large they are guessed."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from lz4 import frame

from kprod.buffer.compression import (
    CODEC_IDS,
    CompressionRatios,
    compressor,
    decompress,
)
from tests.unit.buffer.accumulating import BATCH, Accumulating, read

CODECS = ["gzip", "snappy", "lz4", "zstd"]
LEVELS = [
    *((codec, None) for codec in CODECS),
    *(("gzip", level) for level in (-1, 0, 1, 9)),
    *(("lz4", level) for level in (1, 9, 12, 17)),
    *(("zstd", level) for level in (-5, 1, 19, 22)),
]
TEXT = b"all work and no play makes jack a dull boy. " * 400
NOISE = random.Random(1).randbytes(100_000)


@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_a_compressed_batch_is_read_back_unchanged(codec: str, level: int | None) -> None:
    rig = Accumulating(batches=100, compression=codec, compress=compressor(codec, level))
    values = [b"%d " % number + TEXT[:300] for number in range(20)]
    for value in values:
        rig.append(value=value)
    rig.accumulator.begin_flush()
    found = [read(batch) for _ in range(20) for batch in rig.drain()]
    assert [record.value for batch in found for record in batch.records()] == values
    stored_as_it_is = (codec, level) == ("gzip", 0)
    assert {batch.codec for batch in found} == {0 if stored_as_it_is else CODEC_IDS[codec]}


@pytest.mark.parametrize("codec", CODECS)
def test_more_records_fit_into_a_batch_that_compresses_well(codec: str) -> None:
    rig = Accumulating(batches=1000, compression=codec, compress=compressor(codec, None))
    counts = []
    for _ in range(2000):
        rig.append(value=TEXT[:440])
        for batch in rig.drain():
            counts.append(batch.record_count)
            assert batch.size <= BATCH
            batch.release()
    assert counts[0] <= 2
    assert counts[-1] > 4 * counts[0], "the estimate did not follow"
    rig.accumulator.close()
    for batch in rig.take_all():
        batch.release()
    assert rig.used == 0


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 100_000])
@pytest.mark.parametrize("content", [TEXT * 10, NOISE])
def test_what_is_compressed_can_be_cut_up_again(codec: str, size: int, content: bytes) -> None:
    compress = compressor(codec, None)
    assert compress is not None
    packed = memoryview(compress(memoryview(content[:size])))
    assert bytes(decompress(CODEC_IDS[codec], packed)) == content[:size]


@pytest.mark.parametrize("codec", CODECS)
def test_two_threads_may_compress_at_the_same_time(codec: str) -> None:
    compress = compressor(codec, None)
    assert compress is not None
    texts = [bytes([65 + number]) * 1000 + TEXT * 20 for number in range(4)]
    alone = [compress(memoryview(text)) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(10):
            assert list(threads.map(compress, map(memoryview, texts))) == alone


@pytest.mark.parametrize("level", [-5, 0, 1, 3, 4, 9])
@pytest.mark.parametrize("size", [1_000, 128 * 1024, 150_000, 500_000])
def test_a_zstd_level_is_what_zstd_makes_of_it(level: int, size: int) -> None:
    text = b"".join(b"%d: %s\n" % (number, TEXT[number % 99 :][:60]) for number in range(9_000))
    compress = compressor("zstd", level)
    assert compress is not None
    made = compress(memoryview(text[:size]))
    assert made == zstandard.ZstdCompressor(level=level).compress(text[:size])


@pytest.mark.parametrize("level", [1, 3, 9, 12, 16])
def test_an_lz4_level_is_what_lz4_makes_of_it(level: int) -> None:
    text = b"".join(b"%d: %s\n" % (number, TEXT[number % 99 :][:60]) for number in range(3_000))
    compress = compressor("lz4", level)
    assert compress is not None
    usual = frame.compress(text, compression_level=level, block_linked=False, store_size=False)
    assert compress(memoryview(text)) == usual


@pytest.mark.parametrize(
    ("known", "observed", "next_estimate"),
    [
        (1.0, 0.5, 0.995),
        (0.995, 0.5, 0.99),
        (0.99, 1.2, 1.2),
        (0.5, 0.51, 0.55),
        (0.502, 0.5, 0.5),
        (0.7, 0.7, 0.7),
    ],
)
def test_worse_is_believed_at_once_and_better_slowly(
    known: float, observed: float, next_estimate: float
) -> None:
    ratios = CompressionRatios()
    teach(ratios, known)
    ratios.observed("t", observed)
    assert ratios.estimate("t") == pytest.approx(next_estimate)


def teach(ratios: CompressionRatios, known: float) -> None:
    """Bring the estimate to ``known``, from which it does not move by seeing the same again."""
    while ratios.estimate("t") > known:
        ratios.observed("t", known)
    assert ratios.estimate("t") == pytest.approx(known)
