"""Splits a batch into smaller ones (Kafka's ``ProducerBatch.split``).

A batch is split into two if a broker finds it too large, and into more if the network cannot carry
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kprod.buffer.compression import Decompressor
from kprod.buffer.delivery import BatchDelivery
from kprod.types import Header
from kprod_ext import BufferPool
from kprod_ext.batch import HEADER_BYTES, RECORD_OVERHEAD, ProducerBatch


def split(
    batch: ProducerBatch,
    codec: int,
    decompress: Decompressor,
    expedite: Callable[[], None],
    count: int = 2,
) -> list[ProducerBatch]:
    """Split ``batch`` into 2 to ``count`` batches of about as many bytes each, in order.

    The futures of ``batch`` move to the new batches with their records. The new batches keep its
    age and its position in the queue, and divide its sequence numbers into consecutive ranges. So
    if ``batch`` itself is stored after all, the broker finds the new batches out of order. Their
    memory is not part of ``buffer_memory``, because the sender cannot wait for memory. Only the
    sender thread may call this.
    """
    if batch.record_count < 2:
        raise AssertionError(f"{batch!r} cannot be split")
    encoded = decompress(batch.compression, batch.build()[HEADER_BYTES:])
    records = list(read_records(memoryview(encoded), batch.base_timestamp))
    firsts = _firsts(records, count)
    ends = [*firsts[1:], len(records)]
    parts = [
        _part(batch, records[first:end], codec, expedite)
        for first, end in zip(firsts, ends, strict=True)
    ]
    for number, (first, part) in enumerate(zip(firsts, parts, strict=True)):
        part.drain_order = (*(batch.drain_order or ()), number)  # (2,) < (3, 0) < (3, 1) < (4,)
        if batch.producer is not None:
            part.give_sequence(batch.producer, (batch.base_sequence + first) & 0x7FFF_FFFF)
    deliveries = [part.delivery for part in parts]
    batch.delivery.split_into(list(zip(firsts, deliveries, strict=True)))
    return parts


def _firsts(records: Sequence[EncodedRecord], count: int) -> list[int]:
    """The indexes at which the parts begin; none is empty, and they have about the same size."""
    share = sum(record.size_bound for record in records) / count
    firsts = [0]
    size, part = 0, 0
    for index, record in enumerate(records[:-1], start=1):
        size += record.size_bound
        if size >= share * (part + 1):
            part = int(size / share)
            firsts.append(index)
    return firsts if len(firsts) > 1 else [0, len(records) - 1]


def _part(
    batch: ProducerBatch, records: Sequence[EncodedRecord], codec: int, expedite: Callable[[], None]
) -> ProducerBatch:
    size = HEADER_BYTES + sum(record.size_bound for record in records)
    pool = BufferPool(size, size)
    buffer = pool.allocate(size, 0)
    delivery = BatchDelivery(batch.tp, expedite, batch.delivery.callbacks, batch.delivery.wait_for)
    part = ProducerBatch(
        buffer,
        batch.tp,
        delivery,
        batch.created_at,
        write_limit=size,
        compression=codec,
        pool=pool,
    )
    for record in records:
        part.append(record.timestamp, record.key, record.value, record.headers)
    part.close_for_append()  # it waits in the queue, where callers append to the open batch
    part.maybe_written, part.overtaken = batch.maybe_written, batch.overtaken
    part.delivery.awaited = batch.delivery.awaited
    return part


class EncodedRecord(NamedTuple):
    """One record, and the maximum number of bytes that it takes in another batch."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    size_bound: int


def read_records(encoded: memoryview, base_timestamp: int) -> Iterator[EncodedRecord]:
    """The records in order; ``encoded`` contains the uncompressed records of a batch."""
    cursor = _Cursor(encoded)
    while cursor.at < len(encoded):
        length = cursor.varint()
        cursor.at += 1  # attributes, always 0
        timestamp = base_timestamp + cursor.varint()
        cursor.varint()  # offset delta: its place in the batch
        key, value = cursor.sized(), cursor.sized()
        headers = tuple(
            (str(cursor.sized() or b"", "utf-8"), cursor.sized()) for _ in range(cursor.varint())
        )
        yield EncodedRecord(timestamp, key, value, headers, length + RECORD_OVERHEAD)


class _Cursor:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def varint(self) -> int:
        """A zigzag varint (Protocol Buffers encoding)."""
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def sized(self) -> bytes | None:
        """Bytes that follow their length; None for length -1."""
        size = self.varint()
        if size < 0:
            return None
        self.at += size
        return bytes(self._data[self.at - size : self.at])
