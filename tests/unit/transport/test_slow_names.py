"""A resolver that takes its time holds up nobody but those who need the name."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from kprod.errors import ConnectionLost
from kprod.transport.tcp import Address, NameLookup, NameLookups, TcpBackend
from kprod.transport.tcp_transport import TcpTransport

LONG = 20.0


class SlowNames:
    """Resolves every name to where ``listener`` is; those that begin with "slow" when told to."""

    def __init__(self, listener: socket.socket) -> None:
        self.may_answer = threading.Event()
        self.asked: list[str] = []
        self.error: Exception | None = None
        self._address = Address(socket.AF_INET, listener.getsockname())

    def resolve(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        if host.startswith("slow"):
            assert self.may_answer.wait(LONG)
        if self.error is not None:
            raise self.error
        return [self._address]


@pytest.fixture
def names() -> Iterator[SlowNames]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        names = SlowNames(listener)
        yield names
        names.may_answer.set()
        for thread in threading.enumerate():
            if thread.name.startswith("kprod-resolver"):
                thread.join(LONG)


@pytest.fixture
def backend(names: SlowNames) -> Iterator[TcpBackend]:
    backend = TcpBackend(resolver=names.resolve)
    yield backend
    backend.close()


def until_connected(backend: TcpBackend, transport: TcpTransport) -> None:
    while not transport.advance():
        backend.poll(LONG)


def test_others_connect_meanwhile(names: SlowNames, backend: TcpBackend) -> None:
    slow = backend.dial("slow", 1)
    until_connected(backend, backend.dial("fast", 1))
    assert not slow.advance()
    assert slow.progress() == "the name is not resolved yet"
    assert (slow.send([b"x"]), slow.receive(1)) == (0, None)
    names.may_answer.set()
    until_connected(backend, slow)


def test_a_name_is_asked_for_once_at_a_time_and_again_the_next_time(
    names: SlowNames, backend: TcpBackend
) -> None:
    first, second = backend.dial("slow", 1), backend.dial("slow", 1)
    backend.forget(first)  # as one does whose patience has ended
    first.close()
    third = backend.dial("slow", 1)
    names.may_answer.set()
    until_connected(backend, second)
    until_connected(backend, third)
    assert names.asked == ["slow"]
    until_connected(backend, backend.dial("slow", 1))
    assert names.asked == ["slow", "slow"]
    with pytest.raises(ConnectionLost, match="closed"):
        first.advance()


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        UnicodeError("label too long"),
        ZeroDivisionError("a mistake"),
    ],
)
def test_the_cause_of_a_failure_is_told(
    names: SlowNames, backend: TcpBackend, error: Exception
) -> None:
    names.error = error
    transport = backend.dial("slow.example", 9092)
    names.may_answer.set()
    with pytest.raises(ConnectionLost) as raised:
        until_connected(backend, transport)
    assert str(raised.value) == f"cannot resolve slow.example:9092: {error}"
    assert raised.value.__cause__ is error


def test_a_number_is_no_name() -> None:
    before = threading.active_count()
    backend = TcpBackend()
    for host in ("127.0.0.1", "::1"):
        transport = backend.dial(host, 9)
        assert "resolved" not in transport.progress()
    assert threading.active_count() == before
    backend.close()


def test_closing_does_not_wait_for_the_answer(names: SlowNames, backend: TcpBackend) -> None:
    transport = backend.dial("slow", 1)
    backend.close()
    with pytest.raises(ConnectionLost, match="closed"):
        transport.advance()
    names.may_answer.set()  # the answer comes after the end, and does nothing


def test_lookups_of_ever_new_names_leave_nothing_behind() -> None:
    answered, before = threading.Semaphore(0), kept_lookups()
    lookups = NameLookups(lambda host, port: [Address(2, (host, port))], answered.release)
    for number in range(50):
        lookups.ask(f"agent-{number}", 9092)
        assert answered.acquire(timeout=LONG)
    assert kept_lookups() - before <= 2


def kept_lookups() -> int:
    gc.collect()
    return sum(isinstance(found, NameLookup) for found in gc.get_objects())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_asks_for_itself(names: SlowNames, backend: TcpBackend) -> None:
    backend.dial("slow", 1)
    child = os.fork()
    if child == 0:
        try:
            backend.abandon()
            own = TcpBackend(resolver=names.resolve)
            until_connected(own, own.dial("fast", 1))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
