"""Every kernel, from the bytes of one integer to a whole ``send``."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from crc32c import crc32c

from benchmarks.kernels.kernel import Kernel, Work
from benchmarks.sink.sink_process import SinkProcess
from kprod_ext import (
    BufferPool,
    MemoryRecordsBuilder,
    batch_size_upper_bound,
    murmur2,
)
from tests.support.partition_queues import new_queue

RECORDS = 1_000
KEY = b"a-key-of-16-byte"
TIMESTAMP_MS = 1_700_000_000_000
TOPIC = "kernels"
BATCH = 4_194_304
BATCH_SIZES = (16_384, 131_072)


def kernels() -> Iterator[Kernel]:
    """All of them."""
    yield Kernel("empty loop", "What does the loop around the others cost?", RECORDS, _empty_loop)
    for bytes_ in (1, 3, 6):
        yield Kernel(
            f"varint, {bytes_} bytes",
            "What does a longer integer cost, in an append of nothing else?",
            RECORDS,
            partial(_varint, bytes_),
        )
    for size in (8, 16, 100):
        name = f"murmur2, {size} B"
        yield Kernel(name, "What does hashing a key cost?", RECORDS, partial(_murmur2, bytes(size)))
    for size in (10, 100, 1_000, 10_000):
        for key in (None, KEY):
            yield Kernel(
                f"append, {size} B{', keyed' if key else ''}",
                "What does writing a record into a batch with room cost?",
                RECORDS,
                partial(_append, key, bytes(size)),
            )
    yield Kernel(
        "append with a future, 100 B",
        "What does the record's future cost on top, and the partition's lock?",
        RECORDS,
        _append_with_future,
    )
    yield Kernel("buffer pool", "What does borrowing a buffer cost?", RECORDS, _buffer_pool)
    for size in BATCH_SIZES:
        name = f"crc, {size:,} B"
        yield Kernel(name, "What does the checksum of a batch cost?", 100, partial(_crc, size))
        yield Kernel(
            f"batch, {size:,} B",
            "What does a whole batch of 100 B records cost: buffer, records, header, checksum?",
            1,
            partial(_batch, size),
        )
    for key in (None, KEY):
        yield Kernel(
            f"send, 100 B{', keyed' if key else ''}",
            "What does a send cost that goes into an open batch?",
            RECORDS,
            partial(_send, key),
        )
    yield Kernel(
        "send_many, 100 B",
        "And of a thousand in one call?",
        RECORDS,
        _send_many,
    )


def _empty_loop() -> Work:
    def loop() -> None:
        for _ in range(RECORDS):
            pass

    return loop


def _builder(room: int) -> MemoryRecordsBuilder:
    return MemoryRecordsBuilder(BufferPool(room, room).allocate(room, 0.0), write_limit=room)


def _varint(bytes_: int) -> Work:
    """The timestamp is stored as its distance from the batch's first one."""
    builder = _builder(RECORDS * batch_size_upper_bound(None, None))
    builder.try_append(TIMESTAMP_MS, None, None)
    return partial(_fill, builder.try_append, TIMESTAMP_MS + (1 << (7 * bytes_ - 2)), None, None)


def _append(key: bytes | None, value: bytes) -> Work:
    builder = _builder(RECORDS * batch_size_upper_bound(key, value))
    return partial(_fill, builder.try_append, TIMESTAMP_MS, key, value)


def _append_with_future() -> Work:
    value = bytes(100)
    queue = new_queue(batch_size=RECORDS * batch_size_upper_bound(None, value))
    append = partial(queue.append, headers=())
    return partial(_fill, append, TIMESTAMP_MS, None, value)


def _fill(
    append: Callable[[int, bytes | None, bytes | None], Any],
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
) -> None:
    for _ in range(RECORDS):
        append(timestamp_ms, key, value)


def _murmur2(key: bytes) -> Work:
    def hash_all() -> None:
        for _ in range(RECORDS):
            murmur2(key)

    return hash_all


def _buffer_pool() -> Work:
    pool = BufferPool(1_048_576, 16_384)
    pool.deallocate(pool.allocate(16_384, 0.0))

    def borrow() -> None:
        for _ in range(RECORDS):
            pool.deallocate(pool.allocate(16_384, 0.0))

    return borrow


def _crc(size: int) -> Work:
    data = bytes(size)

    def sum_up() -> None:
        for _ in range(100):
            crc32c(data)

    return sum_up


def _batch(size: int) -> Work:
    value = bytes(100)
    pool = BufferPool(size, size)
    pool.deallocate(pool.allocate(size, 0.0))

    def build() -> None:
        buffer = pool.allocate(size, 0.0)
        builder = MemoryRecordsBuilder(buffer, write_limit=size)
        while builder.try_append(TIMESTAMP_MS, None, value):
            pass
        builder.set_producer_state(4000, 0, 0)
        builder.close()
        builder.build().release()
        pool.deallocate(buffer)

    return build


def _send(key: bytes | None) -> Work:
    """Nothing is sent meanwhile: the batches are large, and linger for a minute."""
    producer = _producer()
    producer.flush()
    send, value = producer.send, bytes(100)
    for _ in range(10):  # until the batch is open
        send(TOPIC, value, key)

    def send_all() -> None:
        for _ in range(RECORDS):
            send(TOPIC, value, key)

    return send_all


def _send_many() -> Work:
    values = [bytes(100)] * RECORDS
    producer = _producer()
    _send(None)
    return partial(producer.send_many, TOPIC, values)


@cache
def _producer() -> Any:
    from kprod import KafkaProducer

    sink = SinkProcess()
    producer = KafkaProducer(
        bootstrap_servers=sink.bootstrap_servers,
        linger_ms=60_000,
        batch_size=BATCH,
        max_request_size=2 * BATCH,
        buffer_memory=16 * BATCH,
    )
    atexit.register(sink.__exit__, None, None, None)
    atexit.register(producer.close)
    return producer
