"""The bytes of a closed batch in a socket, and batches that grow beyond their buffer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from kprod_ext import BufferPool, MemoryRecordsBuilder, PooledBuffer, send_buffers
from tests.support.batch_writing import HEADER_BYTES, new_builder
from tests.support.partition_queues import new_queue


def sent(ours: socket.socket, theirs: socket.socket, buffers: list[bytes | memoryview]) -> bytes:
    """Send all buffers in as many calls as needed, and close; the bytes that arrive."""
    ours.setblocking(False)
    found = bytearray()

    def read() -> None:
        while chunk := theirs.recv(1 << 20):
            found.extend(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    while buffers:
        taken = send_buffers(ours.fileno(), buffers)
        while buffers and taken >= len(buffers[0]):
            taken -= len(buffers.pop(0))
        if taken:
            buffers[0] = memoryview(buffers[0])[taken:]
    ours.shutdown(socket.SHUT_WR)
    reader.join()
    return bytes(found)


Pair = tuple[socket.socket, socket.socket]
SMALL, LARGE = 3, 3000
"""Records of a batch that is sent with the GIL, and of one without it."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def closed(records: int, sequence: int = 3) -> MemoryRecordsBuilder:
    builder = new_builder(capacity=1_000_000)
    for number in range(records):
        builder.append(1000 + number, b"key", b"%050d" % number)
    builder.set_producer_state(7, 1, sequence)
    builder.close()
    return builder


@pytest.mark.parametrize("records", [SMALL, LARGE])
@pytest.mark.parametrize("batches", [1, 6, 40])
def test_a_batch_is_sent_with_its_checksum(pair: Pair, records: int, batches: int) -> None:
    buffers: list[bytes | memoryview] = []
    expected = b""
    for number in range(batches):
        buffers += (b"before", *closed(records, number).pieces())
        expected += b"before" + bytes(closed(records, number).build())
    assert sent(*pair, buffers) == expected


@pytest.mark.parametrize("records", [SMALL, LARGE])
def test_new_producer_state_updates_the_checksum(pair: Pair, records: int) -> None:
    builder = closed(records)
    first = bytes(builder.build())
    builder.reopen_producer_state(9, 2, 0)
    again = sent(*pair, [*builder.pieces()])
    builder.reopen_producer_state(7, 1, 3)
    assert again != first
    assert crc32c(again[21:]) == int.from_bytes(again[17:21], "big")
    assert bytes(builder.build()) == first


CHUNK = 1000
VALUE = b"v" * 92
RECORD = 101  # bytes of a record with that value, when its deltas are below 64


class Growing:
    """A builder that may grow up to ``limit`` bytes, and its pool."""

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
    """The same batch, written into one buffer."""
    builder = new_builder(1 << 20)
    for number, value in enumerate(values):
        builder.append(number, b"key", value)
    builder.set_producer_state(7, 1, 3)
    builder.close()
    return bytes(builder.build())


def test_a_batch_is_reported_as_full_once_before_it_grows() -> None:
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


def test_a_deleted_batch_returns_all_its_memory() -> None:
    growing = Growing()
    growing.fill([VALUE] * 100)
    pool = growing.pool
    del growing
    assert pool.available == pool.total


def test_a_growing_batch_does_not_overtake_a_thread_waiting_for_memory() -> None:
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
    assert growing.used == 3 * CHUNK, "the waiting thread has two of these"
    assert growing.buffer.chunk_bytes == 0
    growing.pool.deallocate(growing.buffer)
    waiter.join()
    assert len(found) == 1


def test_memory_is_not_reused_while_a_view_of_it_exists() -> None:
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


@pytest.mark.parametrize("records", [30, LARGE])
def test_the_pieces_of_a_grown_batch_are_sent_with_the_checksum(pair: Pair, records: int) -> None:
    growing = Growing(limit=10**6, memory=10**6)
    values = [VALUE] * records
    growing.fill(values)
    assert sent(*pair, [b"before", *growing.close()]) == b"before" + plain(values)
