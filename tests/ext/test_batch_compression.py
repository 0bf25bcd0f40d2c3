"""Closing a batch that is to be compressed."""

from __future__ import annotations

import gzip
import struct

import pytest

from kprod_ext import BufferPool, MemoryRecordsBuilder, PooledBuffer
from tests.support.batch_writing import HEADER_BYTES, new_builder

CODEC = 1


def repetitive_batch() -> MemoryRecordsBuilder:
    """An open gzip batch that compresses well."""
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
