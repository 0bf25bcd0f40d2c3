"""The path of requests to a handler and of responses back, with slow and hostile clients."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.dispatch import Dispatcher
from kprod.broker.handler_pool import HandlerPool, QuietLog
from kprod.broker.handlers import HANDLERS
from kprod.broker.network.connection import Connection, HangUp, RequestBuffer, RequestMemory
from kprod.broker.network.listener import Session
from kprod.broker.network.stream import READ, PlainStream
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import VERSIONS, ApiKey
from kprod.broker.protocol.messages import response_schema
from kprod.broker.purgatory import Timer
from tests.support.fake_clock import FakeClock
from tests.support.tier import FULL
from tests.unit.broker.nodes import WaitingReply, answer_of, ask, request, running_node
from tests.unit.broker.requests import EVERY, EVERY_VERSION, REQUESTS

# Memory, queue, threads, timers and slow clients --------------------------------------------------


MIB = 1024 * 1024
FREE = 64 * 1024
IDLE = 600.0


def fill(buffer: RequestBuffer, data: bytes) -> list[bytes]:
    """Fill the buffer with received bytes; returns the complete requests."""
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


def test_large_requests_wait_for_memory_and_small_ones_do_not() -> None:
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
    server_end, client_end = socket.socketpair()
    connection = Connection(PlainStream(server_end), Session(), MIB, RequestMemory(MIB), now=0.0)
    with client_end:
        yield connection, client_end
    connection.close()


def test_an_idle_connection_times_out(pair: Pair) -> None:
    connection, _ = pair
    assert connection.read(now=0.0) == READ
    assert not connection.stalled(IDLE, IDLE)
    assert connection.stalled(IDLE + 1, IDLE)


def test_the_timeout_of_a_request_starts_at_its_first_byte(pair: Pair) -> None:
    connection, client = pair
    client.sendall(struct.pack(">i", MIB) + b"x" * 1000)
    assert connection.read(now=500.0) == READ
    assert not connection.stalled(560, IDLE)
    client.sendall(bytes(64 * 1024))
    connection.read(now=559.0)
    assert connection.stalled(561, IDLE)


def test_request_memory_grows_with_the_received_bytes_and_is_released() -> None:
    server_end, client_end = socket.socketpair()
    memory = RequestMemory(100 * MIB)
    connection = Connection(PlainStream(server_end), Session(), 100 * MIB, memory, now=0.0)
    with client_end:
        client_end.sendall(struct.pack(">i", 90 * MIB) + b"x")
        connection.read(now=1.0)
        assert memory.used == 0, "the first 64 KiB are not counted"
        for _ in range(80):
            client_end.sendall(bytes(FREE))
            connection.read(now=1.0)
    assert memory.used == 8 * MIB
    assert connection.stalled(62, IDLE)
    connection.close()
    assert memory.used == 0


def test_a_client_that_does_not_read_its_answer_is_disconnected(pair: Pair) -> None:
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


def test_a_full_handler_queue_blocks_the_network() -> None:
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


def test_a_handler_thread_survives_an_error() -> None:
    pool = HandlerPool(most_threads=1)
    pool.start()
    done = threading.Event()

    def fail() -> None:
        raise ValueError("a fault of a handler")

    pool.put(fail)
    pool.put(done.set)
    assert done.wait(20)
    pool.close()


def test_a_timer_runs_jobs_in_order_without_cancelled_ones() -> None:
    clock = FakeClock(now=0.0)
    timer = Timer(clock)
    done = threading.Event()
    order: list[str] = []
    timer.at(30.0, done.set)
    timer.at(20.0, lambda: order.append("later"))
    timer.at(10.0, lambda: order.append("never")).cancel()
    timer.at(5.0, lambda: order.append("first"))
    # Only now: otherwise the timer might run "later" before "first" is added.
    clock.now = 30.0
    timer.at(0.0, lambda: None)
    assert done.wait(20)
    assert order == ["first", "later"]
    timer.close()


# Requests and responses of every API and version, and closed connections --------------------------


@pytest.mark.parametrize("api", ApiKey)
def test_every_advertised_version_is_answered(api: ApiKey, node: Node) -> None:
    node.topics.create("t", 1)
    node.topics.create("gone", 1)
    for each, version in EVERY_VERSION:
        if each is api:
            assert ask(node, api, version, **REQUESTS[api]) is not None


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_api_versions_version_gets_version_0(version: int, tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        frame = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7" + b"\xff" * 9
        answer = answer_of(node, frame)
    assert answer is not None
    header, body = response_schema(ApiKey.API_VERSIONS, 0).decode(answer[4:])
    assert header.correlation_id == 7
    assert body.error_code is ErrorCode.unsupported_version
    assert [(k.api_key, k.min_version, k.max_version) for k in body.api_keys] == [(18, 0, 4)]


MAY_WAIT = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
EXTREMES = (b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff")
MOST_MEMORY = 400_000
"""KiB that all requests may allocate."""


def frames() -> list[bytes]:
    """Each request in its newest version, in the full tier in all versions."""
    return [
        request(api, version, values)
        for api, values in EVERY
        for version in range(VERSIONS[api].accepted_from, VERSIONS[api].highest + 1)
        if FULL or version == VERSIONS[api].highest
    ]


def cuts(chance: random.Random) -> Iterator[bytes]:
    """Each request truncated to every length."""
    return (frame[:length] for frame in frames() for length in range(len(frame)))


def mutations(chance: random.Random) -> Iterator[bytes]:
    """Requests with one to four changes each."""
    known = frames()
    for _ in range(20_000 if FULL else 3_000):
        data = bytearray(chance.choice(known))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data) + 1)
            extreme = chance.choice(EXTREMES)
            match chance.randrange(5):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    data[at : at + len(extreme)] = extreme
                case 2:
                    del data[at : at + chance.randint(1, 8)]
                case 3:
                    data[at:at] = chance.randbytes(chance.randint(1, 8))
                case _:
                    data[at:at] = data[max(0, at - chance.randint(1, 30)) : at]
        yield bytes(data)


def answer_in_time(reply: WaitingReply, waits: bool) -> bytes:
    """The answer; empty for a request that is still allowed to wait."""
    if not waits:
        return reply.wait()
    try:
        return reply.wait(0.05)
    except queue.Empty:
        return b""


@pytest.mark.parametrize("damaged", [cuts, mutations])
def test_damaged_requests_are_answered_or_close_the_connection(
    damaged: Callable[[random.Random], Iterator[bytes]], tmp_path: Path
) -> None:
    """Each answer has the correlation id of its request; no handler fails."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with running_node(tmp_path) as node:
        node.topics.create("t", 1)
        for frame in damaged(random.Random(21)):
            reply = WaitingReply()
            with contextlib.suppress(HangUp):
                Dispatcher(node, HANDLERS).dispatch(frame, Session(), reply)
                waits = int.from_bytes(frame[:2], "big") in MAY_WAIT
                assert answer_in_time(reply, waits)[4:8] in (b"", frame[4:8]), frame.hex()
        assert ask(node, ApiKey.METADATA, 9, topics=[{"name": "t"}]).topics[0].error_code == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


def test_a_timestamp_out_of_range_closes_the_connection(tmp_path: Path) -> None:
    commit = {**REQUESTS[ApiKey.OFFSET_COMMIT], "retention_time": 1}
    frame = request(ApiKey.OFFSET_COMMIT, 2, commit)
    changed = frame.replace((1).to_bytes(8, "big"), (2**63 - 1).to_bytes(8, "big"))
    with running_node(tmp_path) as node, pytest.raises(HangUp, match=f"a time of {2**63 - 1} ms"):
        answer_of(node, changed)


@pytest.mark.parametrize("version", [10, 11, 12])
def test_metadata_of_a_topic_without_name_and_id_is_an_error(version: int, node: Node) -> None:
    (found,) = ask(node, ApiKey.METADATA, version, topics=[{"name": None}]).topics
    assert found.error_code is ErrorCode.unknown_topic_id


# Log lines caused by clients ----------------------------------------------------------------------


LOG = logging.getLogger("kprod.test_request_path")


def test_suppressed_log_lines_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    log = QuietLog(LOG, clock, most=2, seconds=10.0)
    for number in range(7):
        log.warning("client %d", number)
    clock.advance(10.0)
    log.warning("client %d", 7)
    assert [record.getMessage() for record in caplog.records] == [
        "client 0",
        "client 1",
        "client 7 (and 5 lines like this one were left out)",
    ]
