"""Non-blocking sockets, and a poller that waits for them and for other threads."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from kprod_ext import Poller, receive, send_buffers
from tests.support.interruption import interruptible, repeat_until_interrupted


def test_sending_keeps_no_view(pair: Pair) -> None:
    ours, theirs = pair
    data = bytearray(b"some bytes")
    assert send_buffers(ours.fileno(), [memoryview(data)]) == 10
    data.clear()  # refused while a view of it lives
    theirs.close()
    data += bytes(10)
    with pytest.raises(BrokenPipeError):
        send_buffers(ours.fileno(), (memoryview(data), memoryview(data)))
    data.clear()


@pytest.mark.parametrize("wrong", [[1], ["text"], [b"x", None]])
def test_a_non_buffer_is_refused_and_nothing_is_sent(pair: Pair, wrong: list[bytes]) -> None:
    with pytest.raises(TypeError):
        send_buffers(pair[0].fileno(), wrong)
    assert receive(pair[1].fileno(), 10) is None


LONG = 20.0
BUSY = 0.05
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller()
    yield poller
    poller.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def later(work: Callable[[], object], seconds: float = 0.02) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer


def test_forgotten_descriptors_are_not_reported(poller: Poller) -> None:
    ends = [os.pipe() for _ in range(20)]
    for number, (_, writing) in enumerate(ends):
        poller.watch(writing, number, True)
    for number in (0, 7, 19, 7):
        poller.forget(ends[number][1])
    left = set(range(20)) - {0, 7, 19}
    assert {data for data, _, _ in poller.wait(0)} == left == set(poller.watched())
    for number in left:
        poller.forget(ends[number][1])
    assert poller.wait(0) == poller.watched() == []
    for end in (end for pair in ends for end in pair):
        os.close(end)


@pytest.mark.parametrize("eager", [0.0, BUSY])
def test_a_wait_is_not_shorter_than_its_timeout(poller: Poller, eager: float) -> None:
    for seconds in (0.0, 0.0004, 0.011):
        started = time.monotonic()
        assert poller.wait(seconds, eager) == []
        assert seconds <= time.monotonic() - started < LONG


def test_unsuccessful_spins_become_rare(poller: Poller) -> None:
    began = time.thread_time()
    for _ in range(30):
        assert poller.wait(0.011, 0.01) == []
    assert time.thread_time() - began < 0.2, "most of 30 waits have spun"  # 5 should: 0.05 s


@pytest.mark.parametrize("eager", [0.0, BUSY])
def test_bytes_and_other_threads_end_the_wait(poller: Poller, pair: Pair, eager: float) -> None:
    ours, theirs = pair
    poller.watch(ours.fileno(), "socket", False)
    for _ in range(3):
        timer = later(lambda: theirs.send(b"x"))
        assert poller.wait(LONG, eager) == [("socket", True, False)]
        assert ours.recv(10) == b"x"
        timer.join()
        timer = later(poller.wake)
        assert poller.wait(LONG, eager) == []
        timer.join()


def test_many_wakes_end_one_wait(poller: Poller) -> None:
    for _ in range(100_000):  # more than a pipe holds
        poller.wake()
    assert poller.wait(LONG) == []
    started = time.monotonic()
    assert poller.wait(0.01) == []
    assert time.monotonic() - started >= 0.01


@pytest.mark.parametrize("eager", [0.0, BUSY])
def test_a_signal_handler_runs_and_the_wait_goes_on(poller: Poller, eager: float) -> None:
    ran: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        ran.append(number)

    before = signal.signal(signal.SIGALRM, record)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        started = time.monotonic()
        assert poller.wait(0.1, eager) == []
        assert time.monotonic() - started >= 0.1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ran == [signal.SIGALRM]


@pytest.mark.parametrize("timeout", [None, LONG])
def test_a_signal_to_another_thread_ends_the_wait(poller: Poller, timeout: float | None) -> None:
    """As a signal between the last check for signals and the system call."""
    before = signal.signal(signal.SIGUSR1, lambda *_: poller.wake())
    other = later(lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1), 0.1)
    try:
        began = time.monotonic()
        assert poller.wait(timeout) == []
        assert time.monotonic() - began < LONG / 2
    finally:
        signal.signal(signal.SIGUSR1, before)
        other.join()


def test_an_exception_of_a_signal_handler_ends_the_wait(poller: Poller, pair: Pair) -> None:
    poller.watch(pair[0].fileno(), "socket", False)

    with interruptible():
        for number in range(20):
            repeat_until_interrupted(lambda: poller.wait(LONG, BUSY), 0.0005 + 0.001 * number)
    pair[1].send(b"x")
    assert poller.wait(LONG) == [("socket", True, False)]


def test_a_closed_poller_can_only_be_woken(poller: Poller) -> None:
    poller.close()
    poller.close()
    poller.wake()
    with pytest.raises(ValueError, match="closed"):
        poller.wait(0)


def test_a_lack_of_descriptors_raises_an_error() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            Poller()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
