"""The thread that waits for all clients outlives whatever one of them, or the machine, does."""

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
    """Stands still, and fails in its next calls."""

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
        """There is no memory for it."""
        raise MemoryError

    def send(self, parts: Sequence[Part]) -> int:
        """There is no memory for it."""
        raise MemoryError


def answer(frame: bytearray, session: Session, reply: Reply) -> None:
    """Echo a request, or fail."""
    if bytes(frame) == FAILURE[4:]:
        raise MemoryError
    reply([b"\0\0\0\x09", bytes(frame)])


class Serving:
    """A network thread with its handlers, and clients to it."""

    def __init__(self) -> None:
        self.clock = FailingClock()
        self.pool = HandlerPool(most_threads=2)
        self.pool.start()
        self.network = NetworkThread(answer, self.pool, self.clock, max_idle=600.0)
        self.network.start()

    def connect(self, stream_type: type[PlainStream] = PlainStream) -> socket.socket:
        """The client's end."""
        ours, theirs = socket.socketpair()
        theirs.settimeout(30)
        stream = stream_type(ours)
        memory = RequestMemory(MIB)
        self.network.add(Connection(stream, Session(peer="client"), MIB, memory, now=0.0))
        return theirs

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
    """Whether a request has its answer."""
    client.sendall(REQUEST)
    return _receive(client) == REQUEST


def is_cut_off(client: socket.socket) -> bool:
    """Whether the connection ends, and there is no answer."""
    return _receive(client) == b""


def _receive(client: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):  # by an end that had not read everything
        while len(data) < len(REQUEST) and (piece := client.recv(100)):
            data += piece
    return data


def test_a_connection_without_memory_is_closed_and_the_others_are_served(serving: Serving) -> None:
    with serving.connect() as well, serving.connect(FailingStream) as ill:
        assert is_served(well)
        ill.sendall(REQUEST)
        assert is_cut_off(ill)
        assert is_served(well)


@pytest.mark.parametrize("failures", [1, 5])
def test_the_thread_goes_on_where_it_failed(serving: Serving, failures: int) -> None:
    with serving.connect() as first, serving.connect() as second:
        assert is_served(first)
        assert is_served(second)
        serving.clock.failures = failures
        # Somebody loses a connection if the clock fails in its turn; nobody waits for ever.
        for client in (first, second):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # cut off already
                client.sendall(REQUEST)
            assert _receive(client) in (REQUEST, b"")
        serving.clock.failures = 0
        with serving.connect() as third:
            assert is_served(third)


def test_a_handler_without_memory_costs_its_own_connection(serving: Serving) -> None:
    with serving.connect() as ill, serving.connect() as well:
        ill.sendall(FAILURE)
        assert is_cut_off(ill)
        assert is_served(well)


def test_a_hostile_client_does_not_fill_the_log(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kprod.broker")
    for _ in range(200):
        with serving.connect() as client:
            client.sendall(GARBAGE)
            assert is_cut_off(client)
    said = [r for r in caplog.records if "is not the size of a request" in r.getMessage()]
    assert 1 <= len(said) <= 20
