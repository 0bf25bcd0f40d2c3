"""Cutting a batch in two when the broker finds it too large (Kafka's ``ProducerBatch.split``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kprod.buffer.batch import ProducerBatch
from kprod.buffer.compression import Decompressor
from kprod.buffer.encoded_records import EncodedRecord, read_records
from kprod_ext import BufferPool, MemoryRecordsBuilder
from kprod_ext.batch import HEADER_BYTES


def split(
    batch: ProducerBatch, codec: int, decompress: Decompressor, hurry: Callable[[], None]
) -> list[ProducerBatch]:
    """Two batches that hold the records of ``batch`` in order, about half of its bytes each.

    The futures of ``batch`` follow its records. The new batches keep its age, place in the queue
    and, as consecutive ranges, its sequence numbers: if ``batch`` itself is stored after
    all, the broker finds theirs out of order. Their memory is their own, outside
    ``buffer_memory``, for the sender cannot wait for it. Thread: the sender's only.
    """
    if batch.records is None or batch.record_count < 2:
        raise AssertionError(f"{batch!r} cannot be split")
    encoded = decompress(batch.builder.compression, memoryview(batch.records)[HEADER_BYTES:])
    records = list(read_records(memoryview(encoded), batch.builder.base_timestamp))
    middle = _middle(records)
    halves = (records[:middle], records[middle:])
    parts = [_part(batch, half, codec, hurry) for half in halves]
    for number, part in enumerate(parts):
        part.drain_order = (*(batch.drain_order or ()), number)  # (2,) < (3, 0) < (3, 1) < (4,)
    if batch.producer is not None:
        parts[0].give_sequence(batch.producer, batch.base_sequence)
        after = (batch.base_sequence + middle) & 0x7FFF_FFFF
        parts[1].give_sequence(batch.producer, after)
    batch.delivery.split_into([(0, parts[0].delivery), (middle, parts[1].delivery)])
    return parts


def _middle(records: Sequence[EncodedRecord]) -> int:
    """Where to cut so that neither half is empty and both are about as large."""
    half = sum(record.size_bound for record in records) / 2
    size = 0
    for index, record in enumerate(records[:-1], start=1):
        size += record.size_bound
        if size >= half:
            return index
    return len(records) - 1


def _part(
    batch: ProducerBatch, records: Sequence[EncodedRecord], codec: int, hurry: Callable[[], None]
) -> ProducerBatch:
    size = HEADER_BYTES + sum(record.size_bound for record in records)
    pool = BufferPool(size, size)
    buffer = pool.allocate(size, 0)
    builder = MemoryRecordsBuilder(buffer, write_limit=size, compression=codec, pool=pool)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    builder.close_for_append()  # it waits in the queue, where callers append to what is open
    part = ProducerBatch(
        batch.tp,
        pool,
        buffer,
        builder,
        batch.created_at,
        hurry,
        batch.delivery.callbacks,
        batch.delivery.wait_for,
    )
    part.maybe_written = batch.maybe_written
    part.delivery.awaited = batch.delivery.awaited
    return part
