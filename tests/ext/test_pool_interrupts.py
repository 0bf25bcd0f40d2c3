"""A signal handler that raises while the main thread waits for memory."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kprod_ext import BufferPool, PooledBuffer
from tests.support.interruption import Interrupted, interruptible
from tests.support.pool_waiter import PATIENCE, PoolWaiter, wait_until

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="needs signals for a thread"
)

MAIN = threading.main_thread().ident or 0


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    with interruptible():
        yield


def in_background(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("elsewhere", [False, True], ids=["signalled", "another thread was"])
def test_an_interrupted_waiter_leaves_the_queue(*, elsewhere: bool) -> None:
    """Another thread gets a signal between the last check of Python and the system call."""
    pool = BufferPool(100, 100)
    kept = pool.allocate(100, 0)

    def interrupt_once_it_waits() -> None:
        wait_until(lambda: pool.waiting == 1)
        signal.pthread_kill(threading.get_ident() if elsewhere else MAIN, signal.SIGALRM)

    thread = in_background(interrupt_once_it_waits)
    began = time.monotonic()
    with pytest.raises(Interrupted):
        pool.allocate(100, PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    thread.join()
    assert pool.waiting == 0
    pool.deallocate(kept)
    assert pool.available == 100


def test_an_interrupted_waiter_passes_on_its_share() -> None:
    pool = BufferPool(200, 100)
    buffers = [pool.allocate(100, 0), pool.allocate(100, 0)]
    next_waiter: list[PoolWaiter] = []

    def feed_and_interrupt() -> None:
        wait_until(lambda: pool.waiting == 1)
        next_waiter.append(PoolWaiter(pool, 100))
        pool.deallocate(buffers.pop())
        signal.pthread_kill(MAIN, signal.SIGALRM)

    thread = in_background(feed_and_interrupt)
    with pytest.raises(Interrupted):
        pool.allocate(200, PATIENCE)
    thread.join()
    assert next_waiter[0].buffer().capacity == 100
    assert (pool.available, pool.waiting) == (0, 0)


def wait_for_memory_and_signal(pool: BufferPool) -> None:
    """The memory may come first: then the signal follows.

    Without a GIL a signal may arrive just before a sleep begins, which then lasts its whole time.
    """
    memory = pool.allocate(100, PATIENCE)
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            time.sleep(0.001)
    finally:
        pool.deallocate(memory)


def test_memory_and_signal_may_come_at_the_same_moment() -> None:
    pool = BufferPool(100, 100)
    for attempt in range(100):
        held = pool.allocate(100, 0)

        def race(first: bool = attempt % 2 == 0, held: PooledBuffer = held) -> None:
            """Return the memory here: without a GIL a waiting thread frees nothing it allocated."""
            wait_until(lambda: pool.waiting == 1)
            if first:
                pool.deallocate(held)
            signal.pthread_kill(MAIN, signal.SIGALRM)
            if not first:
                pool.deallocate(held)

        thread = in_background(race)
        with pytest.raises(Interrupted):
            wait_for_memory_and_signal(pool)
        thread.join()
        assert (pool.available, pool.waiting) == (100, 0)
