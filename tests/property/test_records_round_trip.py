"""The broker's reader, which shares no code with the compiled writer, reads its batches."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kprod.records.record_batch import RecordBatch, read_batches
from kprod_ext import BufferPool, MemoryRecordsBuilder, batch_size_upper_bound
from tests.support.batch_writing import HEADER_BYTES, Written, new_builder

INT64_MAX = 2**63 - 1

data = st.one_of(st.none(), st.binary(max_size=200))
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
headers = st.lists(st.tuples(text, data), max_size=10)
records = st.builds(Written, st.integers(0, INT64_MAX), data, data, headers)
batches = st.lists(records, min_size=1, max_size=30)
buffers: list[Callable[[bytes], Any]] = [bytes, bytearray, memoryview]


def only_batch(data: memoryview) -> RecordBatch:
    (batch,) = read_batches(data)
    assert batch.crc_ok
    assert batch.batch_length == len(data) - 12
    return batch


def read_back(batch: RecordBatch) -> list[Written]:
    return [Written(r.timestamp, r.key, r.value, list(r.headers)) for r in batch.records()]


@given(batches, st.sampled_from(buffers))
def test_what_is_written_can_be_read(written: list[Written], kind: Callable[[bytes], Any]) -> None:
    builder = new_builder(1 << 20)
    for timestamp, key, value, pairs in written:
        assert builder.try_append(timestamp, wrap(kind, key), wrap(kind, value), pairs)
    builder.close()
    batch = only_batch(builder.build())
    assert read_back(batch) == written
    assert [record.offset for record in batch.records()] == list(range(len(written)))
    assert batch.record_count == batch.last_offset_delta + 1 == len(written)
    assert batch.base_timestamp == builder.base_timestamp == written[0].timestamp_ms
    assert batch.max_timestamp == builder.max_timestamp == max(r.timestamp_ms for r in written)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.magic) == (0, -1, 2)


def wrap(kind: Callable[[bytes], Any], data: bytes | None) -> Any:
    return None if data is None else kind(data)


@given(batches)
def test_reported_sizes_are_exact(written: list[Written]) -> None:
    builder = new_builder(1 << 20)
    sizes = [builder.append(*record) for record in written]
    for record, size in zip(written, sizes, strict=True):
        assert HEADER_BYTES + size <= batch_size_upper_bound(*record[1:])
    assert (builder.uncompressed_bytes, builder.max_record_size) == (sum(sizes), max(sizes))
    estimated = builder.estimated_bytes_written
    builder.close()
    assert len(builder.build()) == estimated == HEADER_BYTES + sum(sizes)


@given(batches, st.integers(HEADER_BYTES, 2000))
def test_has_room_for_predicts_try_append(written: list[Written], limit: int) -> None:
    capacity = max(limit, batch_size_upper_bound(*written[0][1:]))
    builder = new_builder(capacity, write_limit=limit)
    for i, record in enumerate(written):
        room = builder.has_room_for(*record)
        assert room or i > 0
        assert bool(builder.try_append(*record)) == room
        if not room:
            break
    builder.close()
    assert read_back(only_batch(builder.build())) == written[: builder.record_count]


@given(batches, st.integers(1, 50), st.floats(0.01, 2.0))
def test_compressed_batches_can_grow_and_be_read_back(
    written: list[Written], room: int, ratio: float
) -> None:
    capacity = max(200, batch_size_upper_bound(*written[0][1:]))
    pool = BufferPool(capacity * room, capacity)
    buffer = pool.allocate(capacity, 0)
    builder = MemoryRecordsBuilder(
        buffer, write_limit=capacity, compression=1, compression_ratio=ratio, pool=pool
    )
    count = 0
    while count < len(written) and builder.try_append(*written[count]):
        count += 1
    builder.close(gzip.compress)
    batch = only_batch(builder.build())
    assert count >= 1
    assert batch.codec == builder.compression
    assert read_back(batch) == written[:count]
    pool.deallocate(buffer)
    assert pool.available == pool.total


@given(batches, st.integers(0, INT64_MAX), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))
def test_changing_the_producer_state_changes_nothing_else(
    written: list[Written], producer_id: int, epoch: int, sequence: int
) -> None:
    builder = new_builder(1 << 20)
    for record in written:
        builder.append(*record)
    builder.set_producer_state(1, 2, 3, transactional=True)
    builder.close()
    builder.reopen_producer_state(producer_id, epoch, sequence)
    batch = only_batch(builder.build())
    found = batch.producer_id, batch.producer_epoch, batch.base_sequence
    assert found == (producer_id, epoch, sequence)
    assert batch.attributes == 0x10
    assert read_back(batch) == written


@given(st.lists(records, min_size=1, max_size=60), st.integers(61, 3000), st.integers(61, 20_000))
def test_a_batch_that_grew_has_the_same_bytes_as_a_large_one(
    written: list[Written], chunk: int, limit: int
) -> None:
    first = batch_size_upper_bound(*written[0][1:])
    pool = BufferPool(10_000_000, chunk)
    growing = MemoryRecordsBuilder(
        pool.allocate(max(chunk, first), 0), write_limit=limit, full_size=chunk, pool=pool
    )
    count = 0
    for record in written:
        if not growing.try_append(*record):
            break
        count += 1
    growing.close()
    plain = new_builder(1 << 20)
    for record in written[:count]:
        plain.append(*record)
    plain.close()
    written_bytes = b"".join(growing.pieces())
    assert count > 0
    assert written_bytes == plain.build()
    assert count == 1 or len(written_bytes) <= limit
    assert read_back(only_batch(memoryview(written_bytes))) == written[:count]
