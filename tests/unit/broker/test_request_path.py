"""Requests before they reach a handler: memory, queue, threads, time, and clients that dawdle."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kprod.broker.descriptors import OpenFile
from kprod.broker.handler_pool import HandlerPool
from kprod.broker.network.connection import Connection, RequestBuffer, RequestMemory
from kprod.broker.network.listener import Session
from kprod.broker.network.stream import READ, PlainStream
from kprod.broker.purgatory import Timer
from kprod.broker.records.file_slice import FileSlice
from tests.support.fake_clock import FakeClock

MIB = 1024 * 1024
FREE = 64 * 1024
IDLE = 600.0


def fill(buffer: RequestBuffer, data: bytes) -> list[bytes]:
    """Put bytes in as they would arrive; returns the requests that became whole."""
    found = []
    while data:
        room = buffer.room()
        assert room is not None
        count = min(len(room), len(data))
        room[:count] = data[:count]
        room.release()
        request = buffer.add(count)
        if request is not None:
            found.append(bytes(request))
        data = data[count:]
    return found


def test_memory_grows_with_what_arrives() -> None:
    memory = RequestMemory(100 * MIB)
    buffer = RequestBuffer(100 * MIB, memory)
    fill(buffer, struct.pack(">i", 64 * MIB))
    assert memory.used == 0
    fill(buffer, b"x")
    assert memory.used == 0  # 64 KiB, which are free of charge
    fill(buffer, bytes(FREE))
    assert memory.used == MIB
    fill(buffer, bytes(3 * MIB))
    assert memory.used == 4 * MIB
    buffer.release()
    assert memory.used == 0


def test_big_requests_wait_for_memory_and_small_ones_do_not() -> None:
    memory = RequestMemory(2 * MIB)
    assert memory.take(2 * MIB)
    big, small = RequestBuffer(8 * MIB, memory), RequestBuffer(8 * MIB, memory)
    fill(big, struct.pack(">i", 4 * MIB) + bytes(FREE))
    assert big.room() is None
    assert fill(small, struct.pack(">i", 9) + b"123456789") == [b"123456789"]
    memory.give_back(2 * MIB)
    assert big.room() is not None


Pair = tuple[Connection, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    connection = Connection(PlainStream(ours), Session(), MIB, RequestMemory(MIB), now=0.0)
    with theirs:
        yield connection, theirs
    connection.close()


def test_silence_is_allowed_for_a_while(pair: Pair) -> None:
    connection, _ = pair
    assert connection.read(now=0.0) == READ
    assert not connection.stalled(IDLE, IDLE)
    assert connection.stalled(IDLE + 1, IDLE)


def test_a_request_has_a_time_to_arrive_from_its_first_byte_on(pair: Pair) -> None:
    connection, client = pair
    client.sendall(struct.pack(">i", MIB) + b"x" * 1000)
    assert connection.read(now=500.0) == READ
    assert not connection.stalled(560, IDLE)
    client.sendall(bytes(64 * 1024))
    connection.read(now=559.0)
    assert connection.stalled(561, IDLE)


def test_a_request_that_was_begun_and_left_gives_its_memory_back() -> None:
    ours, theirs = socket.socketpair()
    memory = RequestMemory(100 * MIB)
    connection = Connection(PlainStream(ours), Session(), 100 * MIB, memory, now=0.0)
    with theirs:
        theirs.sendall(struct.pack(">i", 90 * MIB))
        for _ in range(80):
            theirs.sendall(bytes(64 * 1024))
            connection.read(now=1.0)
    assert memory.used == 8 * MIB
    assert connection.stalled(62, IDLE)
    connection.close()
    assert memory.used == 0


def test_who_does_not_take_an_answer_is_let_go(pair: Pair) -> None:
    connection, client = pair
    client.sendall(struct.pack(">i", 9) + b"123456789")
    assert bytes(connection.read(now=0.0)) == b"123456789"
    connection.mute()
    assert not connection.stalled(10 * IDLE, IDLE)
    connection.answer([bytes(64 * MIB)])
    assert connection.write() != 0
    connection.unmute()
    connection.begin(now=0.0)
    assert connection.stalled(31, IDLE)


def test_a_slice_of_a_file_that_was_cut_ends_the_connection(pair: Pair, tmp_path: Path) -> None:
    connection, client = pair
    path = tmp_path / "records"
    path.write_bytes(b"x" * 100)
    piece = FileSlice(OpenFile(os.open(path, os.O_RDONLY)), 10, 60)
    connection.answer([b"head", piece])
    assert connection.write() == 0
    assert client.recv(100) == b"head" + b"x" * 60
    os.truncate(path, 40)
    connection.answer([piece])
    with pytest.raises(OSError, match="a file ended"):
        connection.write()


def test_a_full_channel_makes_the_network_wait() -> None:
    pool = HandlerPool(capacity=2)
    done: list[int] = []
    for number in range(2):
        pool.put(lambda number=number: done.append(number))  # type: ignore[misc]
    waiting = threading.Thread(target=pool.put, args=(lambda: done.append(2),))
    waiting.start()
    pool.submit(lambda: done.append(-1))
    for _ in range(4):
        job = pool.take()
        assert job is not None
        job()
    waiting.join()
    assert done == [-1, 0, 1, 2]
    pool.close()
    assert pool.take() is None


def test_a_handler_outlives_an_error() -> None:
    pool = HandlerPool(most_threads=1)
    pool.start()
    done = threading.Event()

    def fail() -> None:
        raise ValueError("a fault of a handler")

    pool.put(fail)
    pool.put(done.set)
    assert done.wait(20)
    pool.close()


def test_a_timer_keeps_the_order_and_forgets_what_is_cancelled() -> None:
    clock = FakeClock(now=0.0)
    timer = Timer(clock)
    done = threading.Event()
    order: list[str] = []
    timer.at(30.0, done.set)
    timer.at(20.0, lambda: order.append("later"))
    timer.at(10.0, lambda: order.append("never")).cancel()
    timer.at(5.0, lambda: order.append("first"))
    # Only now: a timer that wakes at 30 before "first" is there would rightly run "later" alone.
    clock.now = 30.0
    timer.at(0.0, lambda: None)
    assert done.wait(20)
    assert order == ["first", "later"]
    timer.close()
