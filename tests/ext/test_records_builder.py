"""The stages of a batch: open, closed for append, closed."""

from __future__ import annotations

import pytest

from kprod_ext import BufferPool, MemoryRecordsBuilder
from tests.support.batch_writing import HEADER_BYTES, new_builder


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("full_size", [500, 1000])
@pytest.mark.parametrize("lends_pool", [False, True])
def test_an_empty_batch_takes_one_record_of_any_size(
    compression: int, full_size: int, lends_pool: bool
) -> None:
    """As Kafka's ``MemoryRecordsBuilder.hasRoomFor``: the limits hold from the second one on."""
    pool = BufferPool(100_000, 1000)
    buffer = pool.allocate(1000, 0)
    builder = MemoryRecordsBuilder(
        buffer,
        write_limit=1000,
        full_size=full_size,
        compression=compression,
        pool=pool if lends_pool else None,
    )
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


def test_close_twice_is_close_once() -> None:
    builder = new_builder()
    builder.append(1, None, b"v")
    builder.close()
    before = bytes(builder.build())
    builder.close()
    assert builder.build() == before


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
    with pytest.raises(ValueError, match="given back"):
        builder.try_append(1, None, b"v")
    with pytest.raises(ValueError, match="given back"):
        builder.append(1, None, b"v")
    with pytest.raises(ValueError, match="given back"):
        builder.has_room_for(1, None, b"v")
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
