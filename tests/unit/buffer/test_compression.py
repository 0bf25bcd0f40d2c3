"""Compressed batches: their bytes, the estimate of their size, and who compresses them."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from lz4 import frame

from kprod.buffer.compression import CODEC_IDS, CompressionRatios, compressor, decompress
from kprod.types import ProducerId
from kprod_ext.batch import ProducerBatch
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
    rig.accumulator.flushes.add(None)
    found = [read(batch) for _ in range(20) for batch in rig.drain()]
    assert [record.value for batch in found for record in batch.records()] == values
    stored_uncompressed = (codec, level) == ("gzip", 0)
    assert {batch.codec for batch in found} == {0 if stored_uncompressed else CODEC_IDS[codec]}


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
    assert counts[-1] > 4 * counts[0], "the estimate did not fall"
    rig.accumulator.close()
    for batch in rig.take_all():
        batch.release()
    assert rig.used == 0


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 100_000])
@pytest.mark.parametrize("content", [TEXT * 10, NOISE])
def test_compressed_data_is_decompressed_unchanged(codec: str, size: int, content: bytes) -> None:
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


LINES = b"".join(b"%d: %s\n" % (number, TEXT[number % 99 :][:60]) for number in range(9_000))


@pytest.mark.parametrize("level", [-5, 0, 1, 3, 4, 9])
@pytest.mark.parametrize("size", [1_000, 128 * 1024, 150_000, 500_000])
def test_zstd_levels_match_the_zstandard_package(level: int, size: int) -> None:
    compress = compressor("zstd", level)
    assert compress is not None
    made = compress(memoryview(LINES[:size]))
    assert made == zstandard.ZstdCompressor(level=level).compress(LINES[:size])


@pytest.mark.parametrize("level", [1, 3, 9, 12, 16])
def test_lz4_levels_match_the_lz4_package(level: int) -> None:
    compress = compressor("lz4", level)
    assert compress is not None
    settings = {"block_size": frame.BLOCKSIZE_MAX256KB, "block_linked": False, "store_size": False}
    assert compress(memoryview(LINES)) == frame.compress(LINES, compression_level=level, **settings)


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
def test_the_estimate_rises_at_once_and_falls_slowly(
    known: float, observed: float, next_estimate: float
) -> None:
    ratios = CompressionRatios()
    teach(ratios, known)
    ratios.observed("t", observed)
    assert ratios.estimate("t") == pytest.approx(next_estimate)


def teach(ratios: CompressionRatios, known: float) -> None:
    """Bring the estimate to ``known``."""
    while ratios.estimate("t") > known:
        ratios.observed("t", known)
    assert ratios.estimate("t") == pytest.approx(known)


def gzip(records: memoryview) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(records) + stream.flush()


class Codec:
    """Counts the calls; the next one first calls ``within``."""

    def __init__(self) -> None:
        self.calls = 0
        self.within: Callable[[], object] | None = None

    def __call__(self, records: memoryview) -> bytes:
        self.calls += 1
        within, self.within = self.within, None
        if within is not None:
            within()
        return gzip(records)


@pytest.fixture
def codec() -> Codec:
    return Codec()


@pytest.fixture
def rig(codec: Codec) -> Accumulating:
    return Accumulating(batches=100, compression="gzip", compress=codec)


def value(number: int) -> bytes:
    """Two of them fill a batch before anything was compressed."""
    return b"%04d" % number * 110


def fill(rig: Accumulating, batches: int, *, partition: int = 0, start: int = 0) -> None:
    """Append two records for each of so many batches; all but the last are full."""
    for number in range(2 * batches):
        rig.append(partition, value(start + number))


def numbers(batches: list[ProducerBatch]) -> list[int]:
    """The numbers in the batches, read by an independent reader."""
    return [int((record.value or b"")[:4]) for batch in batches for record in read(batch).records()]


def drain_all(rig: Accumulating) -> list[ProducerBatch]:
    rig.accumulator.flushes.add(None)
    found: list[ProducerBatch] = []
    while taken := rig.drain():
        found += taken
    rig.accumulator.flushes.discard(None)
    return found


def release(rig: Accumulating, batches: list[ProducerBatch]) -> int:
    """Release the batches; the bytes still in use."""
    for batch in batches:
        batch.release()
    return rig.used


def test_callers_compress_when_full_batches_are_queued(rig: Accumulating, codec: Codec) -> None:
    fill(rig, 2)
    assert codec.calls == 0, "the sender takes the only full one next"
    wakes = len(rig.wakes)
    fill(rig, 3, start=4)
    assert codec.calls == 3, "of four full ones the sender compresses one"
    assert len(rig.wakes) >= wakes + 3, "the sender was not woken"
    found = drain_all(rig)
    assert codec.calls == 5
    assert numbers(found) == list(range(10))
    assert release(rig, found) == 0


def test_memory_saved_by_compression_is_freed_at_once(rig: Accumulating, codec: Codec) -> None:
    for partition in range(3):  # until the estimate allows more than a buffer holds
        for _ in range(200):
            rig.append(partition, b"x" * 300)
            found = rig.drain()
            release(rig, found)
    release(rig, drain_all(rig))
    before = codec.calls
    for _ in range(60):
        rig.append(0, b"x" * 300)
    assert codec.calls > before
    waiting = rig.accumulator.incomplete.copy()
    uncompressed = 2
    assert len(waiting) > uncompressed
    packed = sum(batch.is_compressed for batch in waiting)
    assert packed == len(waiting) - uncompressed
    assert rig.used <= packed * BATCH + uncompressed * 10 * BATCH


def test_the_sender_skips_a_batch_being_compressed(rig: Accumulating, codec: Codec) -> None:
    fill(rig, 2)
    seen: list[list[int]] = []

    def drain_meanwhile() -> None:
        seen.append(numbers(rig.drain()))  # the oldest, which the sender compresses itself
        seen.append(numbers(rig.drain()))  # the one that is being compressed
        seen.append(numbers(rig.drain()))
        rig.wakes.clear()

    codec.within = drain_meanwhile
    rig.append(0, value(4))
    assert seen == [[0, 1], [], []]
    assert rig.wakes, "the sender was not woken when the batch was ready"
    assert numbers(drain_all(rig)) == [2, 3, 4]


def test_a_batch_may_be_released_while_being_compressed(rig: Accumulating, codec: Codec) -> None:
    fill(rig, 2)
    gone: list[ProducerBatch] = []

    def end_all() -> None:
        gone.extend(rig.take_all())
        release(rig, gone)

    codec.within = end_all
    rig.append(0, value(4))
    assert len(gone) == 3
    assert rig.used == 0
    assert codec.calls == 1
    fill(rig, 3, start=10)
    found = drain_all(rig)
    assert numbers(found) == list(range(10, 16)), "released batches are still queued"
    assert release(rig, found) == 0


def test_a_failing_codec_is_logged_once(
    rig: Accumulating, codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    """A kept log record keeps no view of the batch."""
    rig.number_from(0)
    fill(rig, 2)

    def fail() -> None:
        codec.within = fail
        raise MemoryError("no memory to compress with")

    codec.within = fail
    rig.append(0, value(4))
    assert not caplog.records
    codec.within = None
    assert len(rig.drain()) == 1
    codec.within = fail
    (uncompressed,) = rig.drain()
    assert read(uncompressed).codec == 0
    assert numbers([uncompressed]) == [2, 3]
    assert caplog.text.count("could not be compressed") == 1
    assert [record.exc_info is not None for record in caplog.records] == [True]
    uncompressed.give_sequence(ProducerId(7, 2), 0)
    assert read(uncompressed).producer_epoch == 2


def test_a_batch_of_an_interrupted_caller_is_not_lost(rig: Accumulating, codec: Codec) -> None:
    fill(rig, 2)

    def interrupt() -> None:
        raise KeyboardInterrupt

    codec.within = interrupt
    with pytest.raises(KeyboardInterrupt):
        rig.append(0, value(4))
    found = drain_all(rig)
    assert numbers(found) == [0, 1, 2, 3, 4]
    assert release(rig, found) == 0


def test_a_batch_gets_its_sequence_after_it_was_compressed(rig: Accumulating, codec: Codec) -> None:
    fill(rig, 4)
    rig.number_from(100)
    found = [batch for _ in range(3) for batch in rig.drain()]
    assert codec.calls == 3, "a batch was compressed twice"
    headers = [read(batch) for batch in found]
    ends = [header.base_sequence + header.record_count for header in headers]
    assert [header.base_sequence for header in headers] == [100, *ends[:2]]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(7, 1)}


def test_concurrent_callers_and_sender_lose_no_record() -> None:
    rig = Accumulating(batches=40, compression="gzip", compress=gzip)
    each, callers = 400, 3
    sent: list[int] = []
    over = threading.Event()

    def call(caller: int) -> None:
        for number in range(each):
            rig.append(caller, value(1000 * caller + number), timeout=20)

    def send() -> None:
        while not over.is_set() or len(rig.accumulator.incomplete):
            found = drain_all(rig)
            sent.extend(numbers(found))
            for batch in found:
                batch.release()
                rig.accumulator.incomplete.discard(batch)

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(callers)]
    sender = threading.Thread(target=send)
    for thread in [*threads, sender]:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    sender.join()
    for caller in range(callers):
        of_caller = [number for number in sent if number // 1000 == caller]
        assert of_caller == [1000 * caller + number for number in range(each)]
    assert rig.used == 0
