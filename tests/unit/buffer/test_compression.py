"""Compressed batches: what an independent reader makes of them, and how large they are guessed."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard

from kprod.buffer.compression import (
    CODEC_IDS,
    CompressionRatios,
    compressor,
    decompress,
    several,
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
    for batch in rig.accumulator.take_all():
        batch.release()
    assert rig.used == 0


def test_records_that_do_not_shrink_are_sent_as_they_are() -> None:
    rig = Accumulating(compression="gzip", compress=compressor("gzip", None))
    rig.append(value=NOISE[:500])
    rig.accumulator.begin_flush()
    (batch,) = rig.drain()
    found = read(batch)
    assert found.codec == 0
    assert [record.value for record in found.records()] == [NOISE[:500]]


def test_a_codec_that_fails_costs_no_record(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: memoryview) -> bytes:
        raise MemoryError("no memory to compress with")

    rig = Accumulating(compression="gzip", compress=fail)
    rig.append(value=TEXT[:500])
    rig.accumulator.begin_flush()
    (batch,) = rig.drain()
    found = read(batch)
    assert found.codec == 0
    assert [record.value for record in found.records()] == [TEXT[:500]]
    assert "no memory to compress with" in caplog.text


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


@pytest.mark.parametrize("level", [None, 1, 4, 12])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("size", [1_000, 100_000, 400_000])
def test_several_batches_become_what_each_becomes_alone(
    codec: str, level: int | None, size: int
) -> None:
    compress = compressor(codec, level)
    assert compress is not None
    compress_several = several(compress)
    assert compress_several is not None
    records = [memoryview((TEXT + NOISE) * 4)[start : start + size] for start in range(3)]
    compress(records[0])  # now it knows how repetitive they are
    for _ in range(2):
        frames = compress_several(records)
        assert [bytes(frames[n]) for n in range(len(frames))] == [compress(r) for r in records]


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_some_codecs_take_one_batch_at_a_time(codec: str) -> None:
    compress = compressor(codec, None)
    assert compress is not None
    assert several(compress) is None


def test_small_and_large_batches_compress_as_well_as_zstd_does_it() -> None:
    lines = (b"%d: %s\n" % (number, TEXT[number % 99 :][:60]) for number in range(9_000))
    text = b"".join(lines)
    for level in (-5, 1, 2, 3, 4, 9):
        compress = compressor("zstd", level)
        assert compress is not None
        for size in (1_000, 30_000, 128 * 1024, 150_000, len(text)):
            usual = zstandard.ZstdCompressor(level=level).compress(text[:size])
            made = compress(memoryview(text[:size]))
            assert len(made) <= 1.05 * len(usual), (level, size)
            if size <= 128 * 1024:
                assert made == usual


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("at_once", [False, True])
def test_half_the_tables_are_for_what_follows_repetitive_batches(level: int, at_once: bool) -> None:
    def frames(*batches: bytes) -> list[bytes]:
        """Of each of them, by one compressor."""
        compress = compressor("zstd", level)
        assert compress is not None
        if not at_once:
            return [compress(memoryview(batch)) for batch in batches]
        compress_several = several(compress)
        assert compress_several is not None
        return [bytes(compress_several([memoryview(batch)])[0]) for batch in batches]

    words = [b"%x " % number for number in random.Random(4).choices(range(20_000), k=50_000)]
    text, repetitive = b"".join(words), b"%s%s" % (TEXT, b" ".join(words[:20])) * 12
    assert min(len(text), len(repetitive)) > 128 * 1024
    first, again, after, other, last = frames(text, text, repetitive, text, text)
    assert first == again == last
    assert other != first
    assert 0.95 * len(first) < len(other) < 1.05 * len(first)
    assert len(after) < len(repetitive) / 5
    for frame, batch in ((other, text), (after, repetitive)):
        assert zstandard.ZstdDecompressor().decompress(frame) == batch


def test_no_codec_means_no_compressor() -> None:
    assert compressor("none", None) is None


# The estimate -------------------------------------------------------------------------------------


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


def test_every_topic_has_an_estimate_of_its_own() -> None:
    ratios = CompressionRatios()
    ratios.observed("t", 2.0)
    assert (ratios.estimate("t"), ratios.estimate("other")) == (2.0, 1.0)
