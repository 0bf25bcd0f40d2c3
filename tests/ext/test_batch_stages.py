"""One batch from its first record to its last: what it takes, refuses, holds and gives back."""

from __future__ import annotations

import gzip
import mmap
import random
import struct
import sys
import tracemalloc
from array import array
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from kprod_ext import BufferPool, MemoryRecordsBuilder, PooledBuffer, batch_size_upper_bound
from tests.support.batch_writing import HEADER_BYTES, Written, new_builder, write_batch


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("full_size", [500, 1000])
@pytest.mark.parametrize("lends_pool", [False, True])
def test_an_empty_batch_takes_one_record_of_any_size(
    compression: int, full_size: int, lends_pool: bool
) -> None:
    """As Kafka's ``MemoryRecordsBuilder.hasRoomFor``: the limits hold from the second one on."""
    pool = BufferPool(100_000, 1000)
    buffer = pool.allocate(1000, 0)
    options: dict[str, Any] = {"full_size": full_size, "compression": compression}
    options |= {"pool": pool} if lends_pool else {}
    builder = MemoryRecordsBuilder(buffer, write_limit=1000, **options)
    assert builder.has_room_for(1, None, bytes(5000))
    assert builder.try_append(1, None, bytes(5000)) > 5000
    assert builder.is_full
    assert not builder.has_room_for(1, None, b"v")
    assert builder.try_append(1, None, b"v") == 0
    builder.close(compress=bytes)
    assert len(builder.build()) > 5000
    pool.deallocate(buffer)
    assert pool.available == 100_000


def test_the_memory_of_the_pool_is_the_limit_of_the_first_record() -> None:
    pool = BufferPool(5000, 1000)
    builder = MemoryRecordsBuilder(pool.allocate(1000, 0), write_limit=1000)
    assert not builder.has_room_for(1, None, bytes(5000))
    assert builder.try_append(1, None, bytes(5000)) == 0


def test_closed_for_append_takes_no_more_records() -> None:
    builder = new_builder()
    builder.append(1, None, b"v")
    builder.close_for_append()
    builder.close_for_append()
    assert builder.is_full
    assert not builder.has_room_for(1, None, b"v")
    assert builder.try_append(1, None, b"v") == 0
    with pytest.raises(ValueError, match="no more records"):
        builder.append(1, None, b"v")
    builder.set_producer_state(1, 2, 3)
    builder.close()
    assert builder.record_count == 1
    assert len(builder.build()) == HEADER_BYTES + builder.uncompressed_bytes


def test_the_state_of_the_producer_is_set_before_closing_and_changed_after_it() -> None:
    builder = new_builder()
    builder.append(1, None, b"v")
    with pytest.raises(RuntimeError):
        builder.reopen_producer_state(1, 1, 1)
    builder.close()
    with pytest.raises(RuntimeError):
        builder.set_producer_state(1, 1, 1)


def test_a_buffer_given_back_is_not_written_to() -> None:
    pool = BufferPool(4096, 1024)
    buffer = pool.allocate(1024, 0)
    builder = MemoryRecordsBuilder(buffer, write_limit=1024)
    builder.append(1, None, b"v")
    pool.deallocate(buffer)
    for call in (builder.try_append, builder.append, builder.has_room_for):
        with pytest.raises(ValueError, match="given back"):
            call(1, None, b"v")
    with pytest.raises(ValueError, match="given back"):
        builder.close()
    with pytest.raises(ValueError, match="given back"):
        MemoryRecordsBuilder(buffer, write_limit=1024)


def test_a_batch_given_back_cannot_be_built_or_reopened() -> None:
    pool = BufferPool(4096, 1024)
    buffer = pool.allocate(1024, 0)
    builder = MemoryRecordsBuilder(buffer, write_limit=1024)
    builder.append(1, None, b"v")
    builder.close()
    pool.deallocate(buffer)
    with pytest.raises(BufferError):
        builder.build()
    with pytest.raises(ValueError, match="given back"):
        builder.reopen_producer_state(1, 1, 1)


VALUE = b"v" * 92
RECORD = 101  # bytes of a record with that value, when its deltas are below 64


def test_a_record_fits_exactly() -> None:
    builder = new_builder(HEADER_BYTES + 2 * RECORD)
    full = []
    for _ in range(2):
        assert builder.has_room_for(0, None, VALUE)
        assert builder.try_append(0, None, VALUE) == RECORD
        full.append(builder.is_full)
    assert full == [False, True]
    assert not builder.has_room_for(0, None, b"")
    assert not builder.closed_for_append


def test_one_byte_too_many_closes_for_append() -> None:
    builder = new_builder(HEADER_BYTES + 2 * RECORD - 1)
    builder.append(0, None, VALUE)
    assert builder.try_append(0, None, VALUE) == 0
    assert builder.closed_for_append
    assert builder.record_count == 1
    assert builder.try_append(0, None, b"") == 0


def test_append_minds_the_memory_and_not_the_limit() -> None:
    builder = new_builder(HEADER_BYTES + 3 * RECORD, write_limit=70)
    for _ in range(3):
        builder.append(0, None, VALUE)
    with pytest.raises(ValueError, match="no room"):
        builder.append(0, None, VALUE)
    assert builder.record_count == 3


def test_compression_stretches_the_limit() -> None:
    builder = new_builder(10_000, write_limit=1000, compression=1, compression_ratio=0.5)
    count = 0
    while builder.try_append(0, None, VALUE):
        count += 1
    # Each further record counts in full, the ones before it with ratio * 1.05.
    assert count == 1 + int((1000 - HEADER_BYTES - RECORD) / (RECORD * 0.5 * 1.05))
    expected = HEADER_BYTES + int(count * RECORD * 0.5 * 1.05)
    assert builder.estimated_bytes_written == expected


def fill(builder: MemoryRecordsBuilder) -> int:
    """Append records of distinct timestamps until there is no room; how many fitted."""
    while builder.try_append(builder.record_count, None, VALUE):
        pass
    return builder.record_count


def compressing(memory: int) -> tuple[BufferPool, PooledBuffer, MemoryRecordsBuilder]:
    """A batch of 1,024 bytes in a pool with so much memory; what it holds shrinks to a tenth."""
    pool = BufferPool(memory, 1024)
    buffer = pool.allocate(1024, 0)
    options: dict[str, Any] = {"compression": 1, "compression_ratio": 0.1, "pool": pool}
    return pool, buffer, MemoryRecordsBuilder(buffer, write_limit=1024, **options)


def test_records_to_be_compressed_outgrow_the_buffer() -> None:
    pool, buffer, builder = compressing(100_000)
    count = fill(builder)
    assert count * RECORD > 7 * 1024
    assert buffer.capacity >= HEADER_BYTES + builder.uncompressed_bytes
    assert pool.available == 100_000 - buffer.capacity
    builder.close(lambda records: records[:500])
    assert buffer.capacity == 1024, "what compression made superfluous goes back at once"
    assert pool.available == 100_000 - 1024
    assert len(builder.build()) == HEADER_BYTES + 500
    pool.deallocate(buffer)
    assert pool.available == 100_000


def test_no_growth_beyond_what_the_pool_has() -> None:
    pool, _, builder = compressing(1500)
    assert fill(builder) == (1500 - HEADER_BYTES) // RECORD
    assert builder.closed_for_append
    assert pool.available >= 0
    with pytest.raises(ValueError, match="no more records"):
        builder.append(0, None, VALUE)


def test_no_growth_while_a_view_is_out() -> None:
    _, buffer, builder = compressing(100_000)
    with memoryview(buffer):
        while builder.has_room_for(0, None, VALUE):
            builder.append(0, None, VALUE)
        assert buffer.capacity == 1024
    assert builder.has_room_for(0, None, VALUE)
    builder.append(0, None, VALUE)
    assert buffer.capacity > 1024


@pytest.mark.parametrize("sizes", [range(600), range(4_030, 4_170), (8_191, 8_192, 100_000)])
def test_all_bytes_arrive_however_many_there_are(sizes: Iterable[int]) -> None:
    noise = random.Random(2).randbytes(100_000)
    for size in sizes:
        batch = write_batch([Written(0, None, noise[:size], ())], 101_000)
        assert batch.endswith(noise[:size] + b"\0"), size  # no headers
        assert len(batch) <= batch_size_upper_bound(None, noise[:size])


def test_more_headers_than_fit_the_stack() -> None:
    headers = [(f"name-{i}", b"%d" % i) for i in range(1000)]
    builder = new_builder(65_536)
    size = builder.append(0, None, None, headers)
    text = sum(2 + len(name) + len(value) for name, value in headers)
    assert size == 3 + 5 + 2 + text  # length; four one-byte fields and null value; header count


def test_a_field_and_a_record_beyond_int32_are_refused() -> None:
    """Memory that is never touched, and a mebibyte 2,200 times: none is spent."""
    builder = new_builder()
    headers = [("h", b"x" * 2**20)] * 2200
    with mmap.mmap(-1, 2**31) as huge:
        calls: list[Callable[[], object]] = [
            lambda: builder.append(0, huge, None),
            lambda: builder.try_append(0, None, huge),
            lambda: builder.append(0, None, None, headers),
            lambda: batch_size_upper_bound(None, None, headers),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="2 GiB"):
                call()
    assert builder.record_count == 0
    assert not builder.closed_for_append


BAD_HEADERS: list[Any] = [
    *(None, 7, "ab", [b"ab"], {"ab": b""}, [("k",)], [("k", b"v", b"w")], [["k", b"v"]]),
    *([(None, b"v")], [(b"k", b"v")], [(1, b"v")], [("k", "v")], [("k", 1)]),
    *([("k", bytearray(b"v"))], [("ok", b"v"), ("\ud800", b"v")]),
]
CALLS: list[Callable[..., Any]] = [
    MemoryRecordsBuilder.has_room_for,
    MemoryRecordsBuilder.try_append,
    MemoryRecordsBuilder.append,
    lambda builder, _, *record: batch_size_upper_bound(*record),
]


@pytest.mark.parametrize("headers", BAD_HEADERS)
def test_headers_that_are_none_leave_the_batch_as_it_was(headers: object) -> None:
    builder = new_builder()
    for call in CALLS:
        with pytest.raises(TypeError):
            call(builder, 0, bytearray(b"k"), None, headers)
        assert (builder.record_count, builder.estimated_bytes_written) == (0, HEADER_BYTES)
        assert not builder.closed_for_append


@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(bytearray(b"__abcd"))[2:],
        array("B", b"abcd"),
        np.frombuffer(b"abcd", np.uint8).reshape(2, 2),
    ],
)
def test_any_contiguous_buffer_is_its_bytes(data: Any) -> None:
    builder, plain = new_builder(), new_builder()
    builder.append(0, data, data)
    plain.append(0, b"abcd", b"abcd")
    builder.close()
    plain.close()
    assert builder.build() == plain.build()


@pytest.mark.parametrize("bad_value", [object(), memoryview(b"abcdef")[::2]])
@pytest.mark.parametrize("headers", [[], [("h", bytearray(b"x"))], [("\ud800", None)], [(1, 2)]])
def test_nothing_is_kept_of_the_arguments(bad_value: Any, headers: Any) -> None:
    key, value = bytearray(b"key"), bytes(bytearray(b"value"))
    arguments = (key, value, headers, bad_value)
    builder = new_builder(100_000)
    before = [sys.getrefcount(argument) for argument in arguments]
    for call in CALLS * 50:
        attempt(call, builder, 0, key, bad_value, headers)
        attempt(call, builder, 0, value, key, headers)
    assert [sys.getrefcount(argument) for argument in arguments] == before
    key.append(0)  # raises BufferError if a view of it were still held


def test_no_memory_is_kept_of_many_headers() -> None:
    headers = [(f"name-{i}", b"value") for i in range(100)]
    builder = new_builder()
    tracemalloc.start()
    try:
        batch_size_upper_bound(None, None, headers)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            builder.has_room_for(0, None, None, headers)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 3200, "less than what one call needs for the time it takes"


def attempt(call: Callable[..., Any], builder: MemoryRecordsBuilder, *record: Any) -> None:
    """Make the call; it may fail, but only with an exception of the kinds documented."""
    try:
        call(builder, *record)
    except (TypeError, ValueError, BufferError):
        return


CODEC = 1


def repetitive_batch() -> MemoryRecordsBuilder:
    builder = new_builder(compression=CODEC)
    for timestamp in range(100):
        builder.append(timestamp, None, b"the same words over and over")
    return builder


def test_the_records_are_compressed_and_the_header_is_not() -> None:
    builder = repetitive_batch()
    raw: list[bytes] = []

    def compress(records: memoryview) -> bytes:
        assert records.readonly
        raw.append(bytes(records))
        return gzip.compress(records)

    builder.close(compress)
    batch = builder.build()
    assert gzip.decompress(batch[HEADER_BYTES:]) == raw[0]
    assert struct.unpack_from(">i", batch, 8) == (len(batch) - 12,)
    assert struct.unpack_from(">h", batch, 21) == (CODEC,)
    assert struct.unpack_from(">i", batch, 57) == (100,)
    assert builder.compression == CODEC
    packed = len(batch) - HEADER_BYTES
    assert builder.actual_compression_ratio == packed / builder.uncompressed_bytes


def test_what_would_grow_goes_uncompressed() -> None:
    builder = new_builder(compression=CODEC)
    builder.append(1, None, b"x")
    builder.close(gzip.compress)
    plain = new_builder()
    plain.append(1, None, b"x")
    plain.close()
    assert builder.build() == plain.build()
    assert builder.compression == 0
    assert builder.actual_compression_ratio > 1


def test_a_batch_may_be_packed_beforehand() -> None:
    builder = repetitive_batch()
    before = builder.estimated_bytes_written
    builder.compress(gzip.compress)
    assert builder.is_compressed
    assert builder.closed_for_append
    assert not builder.is_closed
    assert builder.estimated_bytes_written < before
    builder.set_producer_state(9, 1, 5)
    builder.compress(lambda records: pytest.fail("it was packed before"))
    builder.close(lambda records: pytest.fail("it was packed before"))
    expected = repetitive_batch()
    expected.set_producer_state(9, 1, 5)
    expected.close(gzip.compress)
    assert builder.build() == expected.build()
    assert builder.estimated_bytes_written == len(builder.build())
    builder.compress()


def test_memory_that_is_given_back_meanwhile_is_nobody_elses() -> None:
    pool = BufferPool(10_000, 10_000)
    buffer = pool.allocate(10_000, 0)
    builder = MemoryRecordsBuilder(buffer, write_limit=10_000, compression=CODEC, pool=pool)
    for timestamp in range(100):
        builder.append(timestamp, None, b"the same words over and over")
    others: list[bytes] = []

    def compress(records: memoryview) -> bytes:
        pool.deallocate(buffer)
        mine = pool.allocate(10_000, 0)
        memoryview(mine)[:] = bytes(10_000)
        packed = gzip.compress(records)
        others.append(packed)
        kept.append(mine)
        return packed

    kept: list[PooledBuffer] = []
    builder.compress(compress)
    assert len(gzip.decompress(others[0])) == builder.uncompressed_bytes
    assert memoryview(kept[0]) == bytes(10_000)
    assert pool.available == 0
    pool.deallocate(kept[0])
    assert pool.available == 10_000


def test_a_failing_compressor_leaves_the_records() -> None:
    builder = repetitive_batch()

    def fail(records: memoryview) -> bytes:
        raise OSError("codec is broken")

    with pytest.raises(OSError, match="codec is broken"):
        builder.close(fail)
    with pytest.raises(TypeError):
        builder.close(lambda records: "text")  # type: ignore[arg-type, return-value]
    assert not builder.is_closed
    builder.close(gzip.compress)
    whole = repetitive_batch()
    whole.close(gzip.compress)
    assert builder.build() == whole.build()
