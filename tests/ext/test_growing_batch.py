"""A batch that is full goes on filling, in further memory of its pool, until it is closed."""

from __future__ import annotations

import socket
import threading

import pytest

from kprod_ext import (
    BufferPool,
    MemoryRecordsBuilder,
    PooledBuffer,
)
from tests.support.batch_writing import HEADER_BYTES, new_builder
from tests.support.partition_queues import new_queue
from tests.support.sent_buffers import sent

CHUNK = 1000
VALUE = b"v" * 92
RECORD = 101  # bytes of a record with that value, when its deltas are below 64


class Growing:
    """A builder that may grow up to ``limit`` bytes, and the memory it does so in."""

    def __init__(self, limit: int = 100 * CHUNK, memory: int = 200 * CHUNK) -> None:
        self.pool = BufferPool(memory, CHUNK)
        self.buffer: PooledBuffer = self.pool.allocate(CHUNK, 0)
        self.builder = MemoryRecordsBuilder(
            self.buffer, write_limit=limit, full_size=CHUNK, pool=self.pool
        )

    @property
    def used(self) -> int:
        return self.pool.total - self.pool.available

    def fill(self, values: list[bytes]) -> None:
        for number, value in enumerate(values):
            assert self.builder.try_append(number, b"key", value)

    def close(self) -> list[memoryview]:
        self.builder.set_producer_state(7, 1, 3)
        self.builder.close()
        return self.builder.pieces()


def plain(values: list[bytes]) -> bytes:
    """The same batch, written in one piece of memory."""
    builder = new_builder(1 << 20)
    for number, value in enumerate(values):
        builder.append(number, b"key", value)
    builder.set_producer_state(7, 1, 3)
    builder.close()
    return bytes(builder.build())


def test_the_record_that_fills_it_is_told_of_once_and_before_it_has_to_grow() -> None:
    queue = new_queue(batch_size=CHUNK, batch_max_size=100 * CHUNK)
    queue.grows_to = 100 * CHUNK
    filled = [
        (number, queue.oldest.buffer.chunk_bytes)
        for number in range(100)
        if queue.append(0, None, VALUE, ()).batch_ready
    ]
    assert filled == [((CHUNK - HEADER_BYTES) // RECORD - 1, 0)]
    assert queue.oldest.is_full
    assert queue.oldest.buffer.chunk_bytes > 0


def test_it_takes_more_when_it_is_full() -> None:
    growing = Growing(limit=5 * CHUNK)
    fitting = (CHUNK - HEADER_BYTES) // RECORD
    for _ in range(fitting):
        assert growing.builder.try_append(0, None, VALUE)
    assert growing.buffer.chunk_bytes == 0
    assert not growing.builder.closed_for_append
    while growing.builder.has_room_for(0, None, VALUE):
        assert growing.builder.try_append(0, None, VALUE)
        assert growing.builder.is_full
    assert growing.builder.estimated_bytes_written <= 5 * CHUNK
    assert growing.builder.estimated_bytes_written > 5 * CHUNK - RECORD - 3
    assert growing.builder.try_append(0, None, VALUE) == 0
    assert growing.builder.closed_for_append


def test_a_buffer_that_is_lost_gives_all_of_it_back() -> None:
    growing = Growing()
    growing.fill([VALUE] * 100)
    pool = growing.pool
    del growing
    assert pool.available == pool.total


def test_without_memory_it_takes_no_more() -> None:
    growing = Growing(memory=3 * CHUNK)
    taken = 0
    while growing.builder.try_append(taken, b"key", VALUE):
        taken += 1
    assert growing.builder.closed_for_append
    assert growing.used == 3 * CHUNK
    assert b"".join(growing.close()) == plain([VALUE] * taken)


def test_it_does_not_overtake_a_thread_that_waits_for_memory() -> None:
    growing = Growing(memory=3 * CHUNK)
    waiting = threading.Event()
    found: list[PooledBuffer] = []

    def wait() -> None:
        found.append(growing.pool.allocate(3 * CHUNK, 60, waiting.set))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waiting.wait(60)
    taken = 0
    while growing.builder.try_append(taken, b"key", VALUE):
        taken += 1
    assert growing.used == 3 * CHUNK, "of which the thread that waits has two already"
    assert growing.buffer.chunk_bytes == 0
    growing.pool.deallocate(growing.buffer)
    waiter.join()
    assert len(found) == 1


def test_its_memory_stays_while_a_piece_is_out() -> None:
    growing = Growing(memory=20 * CHUNK)
    values = [VALUE] * 100
    growing.fill(values)
    views = growing.close()
    growing.pool.deallocate(growing.buffer)
    assert growing.used == 0
    others = [growing.pool.allocate(CHUNK, 0) for _ in range(20)]
    for other in others:
        memoryview(other)[:] = b"\xff" * CHUNK
    assert b"".join(views) == plain(values)


@pytest.mark.parametrize("records", [30, 3000])
def test_a_socket_gets_its_pieces_with_the_checksum(records: int) -> None:
    """Few bytes are sent with the GIL held, many without."""
    growing = Growing(limit=10**6, memory=10**6)
    values = [VALUE] * records
    growing.fill(values)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = sent(ours, theirs, [b"before", *growing.close()])
    assert found == b"before" + plain(values)
