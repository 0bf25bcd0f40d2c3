"""One batch: its limits, growth, refused arguments, memory, and bytes in a socket."""

from __future__ import annotations

import gzip
import mmap
import random
import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from crc32c import crc32c

from kprod_ext import (
    BufferPool,
    MemoryRecordsBuilder,
    PooledBuffer,
    batch_size_upper_bound,
    send_buffers,
)
from tests.support.batch_writing import HEADER_BYTES, Written, new_builder, write_batch
from tests.support.partition_queues import new_queue


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("full_size", [500, 1000])
@pytest.mark.parametrize("lends_pool", [False, True])
def test_any_first_record_fits(compression: int, full_size: int, lends_pool: bool) -> None:
    """As in Kafka's ``MemoryRecordsBuilder.hasRoomFor``: limits apply from the second record on."""
    pool = BufferPool(100_000, 1000)
    buffer = pool.allocate(1000, 0)
    options: dict[str, Any] = {"full_size": full_size, "compression": compression}
    options |= {"pool": pool} if lends_pool else {}
    builder = MemoryRecordsBuilder(buffer, write_limit=1000, **options)
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


def test_a_builder_closed_for_append_takes_no_more_records() -> None:
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


def test_a_deallocated_buffer_is_neither_written_nor_read() -> None:
    pool = BufferPool(4096, 1024)
    buffer, other = pool.allocate(1024, 0), pool.allocate(1024, 0)
    builder = MemoryRecordsBuilder(buffer, write_limit=1024)
    closed = MemoryRecordsBuilder(other, write_limit=1024)
    for each in (builder, closed):
        each.append(1, None, b"v")
    closed.close()
    pool.deallocate(buffer)
    pool.deallocate(other)
    for call in (builder.try_append, builder.append, builder.has_room_for):
        with pytest.raises(ValueError, match="given back"):
            call(1, None, b"v")
    with pytest.raises(ValueError, match="given back"):
        builder.close()
    with pytest.raises(ValueError, match="given back"):
        MemoryRecordsBuilder(buffer, write_limit=1024)
    with pytest.raises(BufferError):
        closed.build()
    with pytest.raises(ValueError, match="given back"):
        closed.reopen_producer_state(1, 1, 1)


VALUE = b"v" * 92
RECORD = 101  # bytes of a record with that value, when its deltas are below 64


@pytest.mark.parametrize("missing", [0, 1])
def test_a_record_fits_exactly_and_one_byte_too_many_closes_for_append(missing: int) -> None:
    builder = new_builder(HEADER_BYTES + 2 * RECORD - missing)
    builder.append(0, None, VALUE)
    assert not builder.is_full
    assert builder.has_room_for(0, None, VALUE) is not bool(missing)
    assert builder.try_append(0, None, VALUE) == (0 if missing else RECORD)
    assert builder.is_full
    assert builder.closed_for_append is bool(missing)
    assert builder.try_append(0, None, b"") == 0
    assert builder.record_count == 2 - missing


def test_append_is_limited_by_memory_only() -> None:
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
    # A new record counts in full, the earlier ones with ratio * 1.05.
    assert count == 1 + int((1000 - HEADER_BYTES - RECORD) / (RECORD * 0.5 * 1.05))
    expected = HEADER_BYTES + int(count * RECORD * 0.5 * 1.05)
    assert builder.estimated_bytes_written == expected


def test_a_batch_does_not_grow_while_a_view_exists() -> None:
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


@pytest.mark.parametrize("sizes", [range(600), range(4_030, 4_170), (8_191, 8_192, 100_000)])
def test_values_of_all_sizes_are_written(sizes: Iterable[int]) -> None:
    noise = random.Random(2).randbytes(100_000)
    for size in sizes:
        batch = write_batch([Written(0, None, noise[:size], ())], 101_000)
        assert batch.endswith(noise[:size] + b"\0"), size  # no headers
        assert len(batch) <= batch_size_upper_bound(None, noise[:size])


def test_more_headers_than_fit_the_stack_are_written() -> None:
    headers = [(f"name-{i}", b"%d" % i) for i in range(1000)]
    builder = new_builder(65_536)
    size = builder.append(0, None, None, headers)
    text = sum(2 + len(name) + len(value) for name, value in headers)
    assert size == 3 + 5 + 2 + text  # length; four one-byte fields and null value; header count


def test_a_field_and_a_record_beyond_int32_are_refused() -> None:
    """With untouched memory, and with one mebibyte 2,200 times."""
    builder = new_builder()
    headers = [("h", b"x" * 2**20)] * 2200
    with mmap.mmap(-1, 2**31) as huge:
        calls: list[Callable[[], object]] = [
            lambda: builder.append(0, huge, None),
            lambda: builder.try_append(0, None, huge),
            lambda: builder.append(0, None, None, headers),
            lambda: batch_size_upper_bound(None, None, headers),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="2 GiB"):
                call()
    assert builder.record_count == 0
    assert not builder.closed_for_append


BAD_HEADERS: list[Any] = [
    *(None, 7, "ab", [b"ab"], {"ab": b""}, [("k",)], [("k", b"v", b"w")], [["k", b"v"]]),
    *([(None, b"v")], [(b"k", b"v")], [(1, b"v")], [("k", "v")], [("k", 1)]),
    *([("k", bytearray(b"v"))], [("ok", b"v"), ("\ud800", b"v")]),
]
CALLS: list[Callable[..., Any]] = [
    MemoryRecordsBuilder.has_room_for,
    MemoryRecordsBuilder.try_append,
    MemoryRecordsBuilder.append,
    lambda builder, _, *record: batch_size_upper_bound(*record),
]


@pytest.mark.parametrize("headers", BAD_HEADERS)
def test_invalid_headers_leave_the_batch_unchanged(headers: object) -> None:
    builder = new_builder()
    for call in CALLS:
        with pytest.raises(TypeError):
            call(builder, 0, bytearray(b"k"), None, headers)
        assert (builder.record_count, builder.estimated_bytes_written) == (0, HEADER_BYTES)
        assert not builder.closed_for_append


@pytest.mark.parametrize("bad_value", [object(), memoryview(b"abcdef")[::2]])
@pytest.mark.parametrize("headers", [[], [("h", bytearray(b"x"))], [("\ud800", None)], [(1, 2)]])
def test_no_reference_to_arguments_is_kept(bad_value: Any, headers: Any) -> None:
    key, value = bytearray(b"key"), bytes(bytearray(b"value"))
    arguments = (key, value, headers, bad_value)
    builder = new_builder(100_000)
    before = [sys.getrefcount(argument) for argument in arguments]
    for call in CALLS * 50:
        attempt(call, builder, 0, key, bad_value, headers)
        attempt(call, builder, 0, value, key, headers)
    assert [sys.getrefcount(argument) for argument in arguments] == before
    key.append(0)  # raises BufferError if a view of it were still held


def test_many_headers_leak_no_memory() -> None:
    headers = [(f"name-{i}", b"value") for i in range(100)]
    builder = new_builder()
    tracemalloc.start()
    try:
        batch_size_upper_bound(None, None, headers)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            builder.has_room_for(0, None, None, headers)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 3200, "less than the temporary memory of one call"


def attempt(call: Callable[..., Any], builder: MemoryRecordsBuilder, *record: Any) -> None:
    """Make the call; it may raise the documented exceptions only."""
    try:
        call(builder, *record)
    except (TypeError, ValueError, BufferError):
        return


def test_memory_deallocated_during_compression_is_not_overwritten() -> None:
    pool = BufferPool(10_000, 10_000)
    buffer = pool.allocate(10_000, 0)
    builder = MemoryRecordsBuilder(buffer, write_limit=10_000, compression=1, pool=pool)
    for timestamp in range(100):
        builder.append(timestamp, None, b"the same words over and over")
    others: list[bytes] = []

    def compress(records: memoryview) -> bytes:
        pool.deallocate(buffer)
        other = pool.allocate(10_000, 0)
        memoryview(other)[:] = bytes(10_000)
        packed = gzip.compress(records)
        others.append(packed)
        kept.append(other)
        return packed

    kept: list[PooledBuffer] = []
    builder.compress(compress)
    assert len(gzip.decompress(others[0])) == builder.uncompressed_bytes
    assert memoryview(kept[0]) == bytes(10_000)
    assert pool.available == 0
    pool.deallocate(kept[0])
    assert pool.available == 10_000


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
