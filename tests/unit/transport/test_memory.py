"""What only the network in memory can be told to do."""

from __future__ import annotations

import threading

import pytest

from kprod.errors import ConnectionLost
from kprod.transport.base import Readiness
from kprod.transport.memory import MemoryBackend, MemoryTransport
from tests.support.interruption import interruptible, repeat_until_interrupted

ADDRESS = ("broker", 9092)


class Recorder:
    """Keeps what it receives and answers with what it was given."""

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer
        self.received: list[bytes] = []

    def receive(self, data: bytes) -> bytes:
        self.received.append(data)
        return self.answer


class Crash:
    def receive(self, data: bytes) -> bytes:
        raise ConnectionAbortedError("broker stopped")


def connected(backend: MemoryBackend) -> MemoryTransport:
    transport = backend.dial(*ADDRESS)
    assert transport.advance()
    backend.watch(transport, write=False)
    return transport


def test_one_piece_is_taken_between_two_polls() -> None:
    server = Recorder()
    backend = MemoryBackend({ADDRESS: lambda: server}, send_chunk=3)
    transport = connected(backend)
    backend.watch(transport, write=True)
    taken = [transport.send([b"abcdefg"]), transport.send([b"defg"])]
    assert backend.poll(0) == [Readiness(transport, False, True)]
    taken += [transport.send([b"defg"]), transport.send([b"g"])]
    assert taken == [3, 0, 3, 0]
    assert server.received == [b"abc", b"def"]


def test_answers_can_be_read_byte_by_byte() -> None:
    transport = connected(MemoryBackend({ADDRESS: lambda: Recorder(b"ok")}, receive_chunk=1))
    transport.send([b"?"])
    assert [transport.receive(100) for _ in range(3)] == [b"o", b"k", None]


@pytest.mark.parametrize("ending", ["hang_up", "cut"])
def test_the_end_ends_a_poll_in_another_thread(ending: str) -> None:
    backend = MemoryBackend({ADDRESS: Recorder})
    transport = connected(backend)
    late = threading.Timer(0.02, getattr(transport, ending))
    late.start()
    assert backend.poll(20) == [Readiness(transport, True, False)]
    late.join()


def test_a_cut_loses_what_was_not_read() -> None:
    transport = connected(MemoryBackend({ADDRESS: Recorder}))
    transport.deliver(b"lost")
    transport.cut("cable pulled")
    transport.deliver(b"too late")
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="broker:9092: cable pulled"):
            transport.receive(100)


def test_what_is_sent_after_the_server_hung_up_is_lost() -> None:
    server = Recorder()
    transport = connected(MemoryBackend({ADDRESS: lambda: server}))
    transport.hang_up()
    transport.deliver(b"too late")
    assert transport.send([b"lost"]) == 4
    assert server.received == []
    assert transport.receive(100) == b""


def test_a_server_that_raises_cuts_the_connection() -> None:
    transport = connected(MemoryBackend({ADDRESS: Crash}))
    assert transport.send([b"request"]) == 7
    with pytest.raises(ConnectionLost, match="broker stopped"):
        transport.receive(100)


def test_a_listener_may_come_and_go() -> None:
    listeners = {ADDRESS: Recorder}
    backend = MemoryBackend(listeners)
    first = connected(backend)
    del listeners[ADDRESS]
    with pytest.raises(ConnectionLost, match="refused"):
        backend.dial(*ADDRESS).advance()
    assert first.send([b"still there"]) == 11
    listeners[ADDRESS] = Recorder
    connected(backend)


def test_an_interrupted_wake_leaves_poll_usable() -> None:
    backend = MemoryBackend({ADDRESS: Recorder})
    with interruptible():
        for number in range(500):
            repeat_until_interrupted(backend.wake, 0.0002 + number * 1e-7)
            polling = threading.Thread(target=backend.poll, args=(0,), daemon=True)
            polling.start()
            polling.join(20)
            assert not polling.is_alive(), "an interrupted call has left the lock held"
