"""The bytes of a closed batch, on the way to the socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from kprod_ext import BufferPool, MemoryRecordsBuilder
from tests.support.batch_writing import new_builder
from tests.support.sent_buffers import sent

Pair = tuple[socket.socket, socket.socket]
SMALL, LARGE = 3, 3000
"""Records of a batch that is sent with the GIL held, and of one that is sent without."""


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


@pytest.mark.parametrize("records", [0, 1, SMALL, LARGE])
def test_it_is_what_the_builder_builds(records: int) -> None:
    builder = closed(records)
    assert b"".join(builder.pieces()) == builder.build() == closed(records).build()


@pytest.mark.parametrize("records", [SMALL, LARGE])
@pytest.mark.parametrize("batches", [1, 6, 40])
def test_it_is_sent_with_its_checksum(pair: Pair, records: int, batches: int) -> None:
    buffers: list[bytes | memoryview] = []
    expected = b""
    for number in range(batches):
        buffers += (b"before", *closed(records, number).pieces())
        expected += b"before" + bytes(closed(records, number).build())
    assert sent(*pair, buffers) == expected


@pytest.mark.parametrize("records", [SMALL, LARGE])
def test_new_producer_state_wants_a_new_checksum(pair: Pair, records: int) -> None:
    builder = closed(records)
    first = bytes(builder.build())
    builder.reopen_producer_state(9, 2, 0)
    again = sent(*pair, [*builder.pieces()])
    builder.reopen_producer_state(7, 1, 3)
    assert again != first
    assert crc32c(again[21:]) == int.from_bytes(again[17:21], "big")
    assert bytes(builder.build()) == first


def test_a_batch_that_is_open_has_no_pieces() -> None:
    with pytest.raises(RuntimeError, match="not closed"):
        new_builder().pieces()


def test_it_lends_the_memory() -> None:
    pool = BufferPool(1000, 1000)
    buffer = pool.allocate(1000, 0)
    builder = MemoryRecordsBuilder(buffer, write_limit=1000)
    builder.append(1, None, b"value")
    builder.close()
    (view,) = builder.pieces()
    with pytest.raises(BufferError):
        builder.reopen_producer_state(1, 1, 1)
    expected = bytes(view)
    pool.deallocate(buffer)
    other = pool.allocate(1000, 0)
    memoryview(other)[:] = b"\xff" * 1000
    assert bytes(view) == expected
    with pytest.raises(BufferError):
        builder.pieces()
