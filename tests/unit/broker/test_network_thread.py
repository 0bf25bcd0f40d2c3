"""The network thread survives failures of clients, handlers and memory allocation."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence

import pytest

from kprod.broker.handler_pool import HandlerPool
from kprod.broker.network.connection import Connection, RequestMemory
from kprod.broker.network.listener import Session
from kprod.broker.network.network_thread import NetworkThread, Reply
from kprod.broker.network.stream import Part, PlainStream
from kprod.clock import SystemClock

REQUEST = b"\0\0\0\x09" + b"123456789"
FAILURE = b"\0\0\0\x09" + b"badmemory"
GARBAGE = b"\xff\xff\xff\xff"
MIB = 1024 * 1024


class FailingClock(SystemClock):
    """Does not advance, and fails in the next ``failures`` calls."""

    def __init__(self) -> None:
        self.failures = 0
        self.monotonic = self._monotonic

    def _monotonic(self) -> float:
        if self.failures:
            self.failures -= 1
            raise MemoryError
        return 0.0


class FailingStream(PlainStream):
    """A stream that can only be closed."""

    def receive_into(self, buffer: memoryview) -> int | None:
        """Fail for lack of memory."""
        raise MemoryError

    def send(self, parts: Sequence[Part]) -> int:
        """Fail for lack of memory."""
        raise MemoryError


def answer(frame: bytearray, session: Session, reply: Reply) -> None:
    """Echo a request, or fail."""
    if bytes(frame) == FAILURE[4:]:
        raise MemoryError
    reply([b"\0\0\0\x09", bytes(frame)])


class Serving:
    """A network thread with handlers and clients."""

    def __init__(self) -> None:
        self.clock = FailingClock()
        self.pool = HandlerPool(most_threads=2)
        self.pool.start()
        self.network = NetworkThread(answer, self.pool, self.clock, max_idle=600.0)
        self.network.start()

    def connect(self, stream_type: type[PlainStream] = PlainStream) -> socket.socket:
        """Return the client's end of a connection."""
        server_end, client_end = socket.socketpair()
        client_end.settimeout(30)
        stream = stream_type(server_end)
        memory = RequestMemory(MIB)
        self.network.add(Connection(stream, Session(peer="client"), MIB, memory, now=0.0))
        return client_end

    def close(self) -> None:
        """End all threads."""
        self.network.cut()
        self.pool.close()
        self.network.close()


@pytest.fixture(params=["0", "1"], ids=["best_selector", "poll"])
def serving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setenv("KPROD_PORTABLE", request.param)
    serving = Serving()
    with contextlib.closing(serving):
        yield serving


def is_served(client: socket.socket) -> bool:
    """Whether a request is answered."""
    client.sendall(REQUEST)
    return _receive(client) == REQUEST


def is_cut_off(client: socket.socket) -> bool:
    """Whether the connection ends without an answer."""
    return _receive(client) == b""


def _receive(client: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):  # closed with unread data
        while len(data) < len(REQUEST) and (piece := client.recv(100)):
            data += piece
    return data


def test_only_the_connection_that_runs_out_of_memory_is_closed(serving: Serving) -> None:
    with serving.connect() as healthy, serving.connect(FailingStream) as failing:
        assert is_served(healthy)
        failing.sendall(REQUEST)
        assert is_cut_off(failing)
        assert is_served(healthy)


@pytest.mark.parametrize("failures", [1, 5])
def test_the_thread_continues_after_a_failing_clock(serving: Serving, failures: int) -> None:
    with serving.connect() as first, serving.connect() as second:
        assert is_served(first)
        assert is_served(second)
        serving.clock.failures = failures
        # A client may lose its connection, but none waits for ever.
        for client in (first, second):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # closed already
                client.sendall(REQUEST)
            assert _receive(client) in (REQUEST, b"")
        serving.clock.failures = 0
        with serving.connect() as third:
            assert is_served(third)


def test_a_handler_without_memory_closes_only_its_connection(serving: Serving) -> None:
    with serving.connect() as failing, serving.connect() as healthy:
        failing.sendall(FAILURE)
        assert is_cut_off(failing)
        assert is_served(healthy)


def test_log_lines_about_invalid_requests_are_limited(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kprod.broker")
    for _ in range(200):
        with serving.connect() as client:
            client.sendall(GARBAGE)
            assert is_cut_off(client)
    lines = [r for r in caplog.records if "is not the size of a request" in r.getMessage()]
    assert 1 <= len(lines) <= 20
