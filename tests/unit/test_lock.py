"""Locks exclude other threads, latches wake all; interruptions leave neither of them held."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from kprod.latch import Latch
from kprod.lock import Lock
from tests.support.interruption import interruptible, repeat_until_interrupted

LONG = 20.0


def enter(lock: Lock) -> None:
    with lock:
        pass


def test_a_lock_is_held_within_the_block_only() -> None:
    lock = Lock()
    other = threading.Thread(target=enter, args=(lock,))
    with lock:
        other.start()
        other.join(0.05)
        assert other.is_alive()
    other.join(LONG)
    assert not other.is_alive()


def test_an_interruption_at_any_moment_of_a_block_leaves_the_lock_free() -> None:
    lock = Lock()
    with interruptible():
        for number in range(2000):
            repeat_until_interrupted(partial(enter, lock), 0.0002 + number * 1e-7)
            other = threading.Thread(target=enter, args=(lock,), daemon=True)
            other.start()
            other.join(LONG)
            assert not other.is_alive(), "an interrupted block has left the lock held"


@pytest.mark.parametrize("timeout", [None, LONG, 10.0**12])
def test_opening_a_latch_wakes_all_waiters(timeout: float | None) -> None:
    latch = Latch()
    with ThreadPoolExecutor(5) as pool:
        waiters = [pool.submit(latch.wait, timeout) for _ in range(5)]
        latch.open()
        assert [waiter.result(LONG) for waiter in waiters] == [True] * 5


def test_an_interruption_at_any_moment_of_a_wait_leaves_the_latch_usable() -> None:
    with interruptible():
        for number in range(500):
            latch = Latch()
            repeat_until_interrupted(partial(latch.wait, 1e-6), 0.0002 + number * 3e-7)
            _others_wait_and_open(latch)


@pytest.mark.parametrize("timeout", [None, LONG])
def test_a_signal_during_a_wait_is_handled_at_once(timeout: float | None) -> None:
    """Also one that arrives just before the system call that waits."""
    latch = Latch()
    before = signal.signal(signal.SIGUSR1, lambda *_: latch.open())
    other = threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1))
    other.start()
    try:
        began = time.monotonic()
        assert latch.wait(timeout)
        assert time.monotonic() - began < LONG / 2
    finally:
        signal.signal(signal.SIGUSR1, before)
        other.join()


def _others_wait_and_open(latch: Latch) -> None:
    waiter = threading.Thread(target=latch.wait, args=(LONG,), daemon=True)
    opener = threading.Thread(target=latch.open, daemon=True)
    for thread in (waiter, opener):
        thread.start()
    for thread in (opener, waiter):
        thread.join(LONG / 2)
        assert not thread.is_alive(), "an interrupted wait has left the lock held"
