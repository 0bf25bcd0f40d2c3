"""A batch whose records are written where its partition keeps its tail, and who else sees them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from kprod_ext import (
    BufferPool,
    MemoryRecordsBuilder,
    PartitionAppender,
    RecordFuture,
    TopicAppender,
)

LIMIT = 400


def new_builder(limit: int = LIMIT, *, compression: int = 0) -> MemoryRecordsBuilder:
    buffer = BufferPool(1_000, 1_000).allocate(LIMIT, 0.0)
    return MemoryRecordsBuilder(buffer, write_limit=limit, compression=compression)


def seen(builder: MemoryRecordsBuilder) -> list[Any]:
    return [
        builder.record_count,
        builder.uncompressed_bytes,
        builder.max_record_size,
        builder.base_timestamp,
        builder.max_timestamp,
        builder.estimated_bytes_written,
        builder.is_full,
        builder.closed_for_append,
    ]


@pytest.mark.parametrize("compression", [0, 1])
def test_an_open_batch_is_written_as_one_by_itself(compression: int) -> None:
    alone, opened = new_builder(compression=compression), new_builder(compression=compression)
    batch, delivery = PartitionAppender(RecordFuture), object()
    batch.open(opened, delivery)
    full = False
    for number in range(100):
        size = alone.try_append(number, b"k", b"v" * (number % 50))
        future = batch.try_append(number, b"k", b"v" * (number % 50))
        assert seen(opened) == seen(alone)
        if future is None:
            assert size == 0
            break
        full = batch.last_full
        assert (batch.last_bytes, full) == (size, alone.is_full)
        assert (future.index, future.timestamp) == (number, number)
        assert future.delivery is delivery
    assert opened.closed_for_append or full
    batch.shut()
    assert seen(opened) == seen(alone)
    for builder in (alone, opened):
        builder.close(bytes)
    assert bytes(opened.build()) == bytes(alone.build())


def test_what_was_written_outlives_the_open_batch() -> None:
    builder = new_builder()
    batch = PartitionAppender(RecordFuture)
    batch.open(builder, object())
    batch.try_append(7, b"k", b"v")
    before = seen(builder)
    del batch
    gc.collect()
    assert seen(builder) == before
    assert builder.try_append(8, b"k", b"v") > 0
    assert builder.record_count == 2


def test_a_batch_is_open_in_one_place() -> None:
    builder = new_builder()
    batch, other = PartitionAppender(RecordFuture), PartitionAppender(RecordFuture)
    batch.open(builder, "first")
    with pytest.raises(ValueError, match="open elsewhere"):
        other.open(builder, "other")
    batch.open(builder, "second")
    assert batch.try_append(1, None, b"v").delivery == "second"
    batch.shut()
    other.open(builder, "other")
    future = other.try_append(1, None, b"v")
    assert (future.delivery, future.index) == ("other", 1)


def test_the_next_batch_does_not_touch_the_one_before() -> None:
    first, second = new_builder(), new_builder()
    batch = PartitionAppender(RecordFuture)
    batch.open(first, "first")
    batch.try_append(1, None, b"one")
    batch.open(second, "second")
    batch.try_append(2, None, b"two")
    assert (first.record_count, first.base_timestamp) == (1, 1)
    assert (second.record_count, second.base_timestamp) == (1, 2)
    assert first.try_append(3, None, b"three") > 0
    assert second.record_count == 1


def test_a_ring_through_an_open_batch_is_collected() -> None:
    class Delivery:
        gone = 0
        batch: PartitionAppender

        def __del__(self) -> None:
            Delivery.gone += 1

    batch, delivery = PartitionAppender(RecordFuture), Delivery()
    delivery.batch = batch
    builder = new_builder()
    batch.open(builder, delivery)
    batch.try_append(1, None, b"v")
    del batch, delivery
    gc.collect()
    assert Delivery.gone == 1
    assert builder.record_count == 1


class Other(RecordFuture):
    pass


def test_a_lane_refuses_what_it_cannot_take() -> None:
    appender = TopicAppender(2, 1_000, print)
    appender.admit(0, PartitionAppender(RecordFuture))
    for partition in (-1, 2):
        with pytest.raises(IndexError):
            appender.admit(partition, PartitionAppender(RecordFuture))
    with pytest.raises(TypeError, match="one type"):
        appender.admit(1, PartitionAppender(Other))
    assert (appender.admits(0), appender.admits(1)) == (True, False)
