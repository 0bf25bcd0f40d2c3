"""When a batch is full, and what happens to the record that does not fit."""

from __future__ import annotations

import pytest

from kprod_ext import BufferPool, MemoryRecordsBuilder
from tests.support.batch_writing import HEADER_BYTES, new_builder

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


def test_records_to_be_compressed_outgrow_the_buffer() -> None:
    pool = BufferPool(100_000, 1024)
    buffer = pool.allocate(1024, 0)
    builder = MemoryRecordsBuilder(
        buffer, write_limit=1024, compression=1, compression_ratio=0.1, pool=pool
    )
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
    pool = BufferPool(1500, 1024)
    builder = MemoryRecordsBuilder(
        pool.allocate(1024, 0), write_limit=1024, compression=1, compression_ratio=0.1, pool=pool
    )
    assert fill(builder) == (1500 - HEADER_BYTES) // RECORD
    assert builder.closed_for_append
    assert pool.available >= 0
    with pytest.raises(ValueError, match="no more records"):
        builder.append(0, None, VALUE)


def test_no_growth_while_a_view_is_out() -> None:
    pool = BufferPool(100_000, 1024)
    buffer = pool.allocate(1024, 0)
    builder = MemoryRecordsBuilder(
        buffer, write_limit=1024, compression=1, compression_ratio=0.1, pool=pool
    )
    with memoryview(buffer):
        while builder.has_room_for(0, None, VALUE):
            builder.append(0, None, VALUE)
        assert buffer.capacity == 1024
    assert builder.has_room_for(0, None, VALUE)
    builder.append(0, None, VALUE)
    assert buffer.capacity > 1024
