"""A pool of memory: accounting, threads that wait for memory, and interrupted waits."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kprod_ext import BufferPool, MemoryRecordsBuilder, PooledBuffer
from tests.support.interruption import Interrupted, interruptible
from tests.support.pool_waiter import PATIENCE, PoolWaiter, wait_until


@pytest.mark.parametrize("size", [1001, 0, -1, sys.maxsize])
def test_impossible_sizes_are_refused(size: int) -> None:
    pool = BufferPool(1000, 100)
    with pytest.raises(ValueError, match="cannot allocate"):
        pool.allocate(size, 0)
    assert pool.available == 1000


def address(buffer: PooledBuffer) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def test_memory_of_the_poolable_size_is_reused() -> None:
    pool = BufferPool(1000, 100)
    buffers = [pool.allocate(100, 0) for _ in range(10)]
    places = {address(buffer) for buffer in buffers}
    for buffer in buffers:
        pool.deallocate(buffer)
    assert pool.available == 1000
    assert {address(pool.allocate(100, 0)) for _ in range(10)} <= places


def test_the_views_of_a_buffer_are_counted() -> None:
    buffer = BufferPool(1000, 100).allocate(100, 0)
    assert buffer.lent == 0
    view = memoryview(buffer)
    part = view[10:20]
    assert buffer.lent == 1, "slices of a view are not counted"
    other = memoryview(buffer)
    assert buffer.lent == 2
    del view, other
    assert buffer.lent == 1
    part.release()
    assert buffer.lent == 0


def test_memory_with_a_view_is_not_reused() -> None:
    pool = BufferPool(1000, 100)
    buffer = pool.allocate(100, 0)
    view = memoryview(buffer)
    view[:] = b"a" * 100
    pool.deallocate(buffer)
    assert pool.available == 1000
    del buffer
    others = [pool.allocate(100, 0) for _ in range(10)]
    for other in others:
        memoryview(other)[:] = b"b" * 100
    assert bytes(view) == b"a" * 100


def test_a_deleted_buffer_returns_its_memory() -> None:
    pool = BufferPool(1000, 100)
    buffer = pool.allocate(400, 0)
    view = memoryview(buffer)
    del buffer
    gc.collect()
    assert pool.available == 600, "its view still exists"
    del view
    assert pool.available == 1000


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the timeout has a thread
def test_a_forked_child_returns_no_memory() -> None:
    """A thread of the parent may have held the lock, which is never released in the child."""
    pool = BufferPool(1000, 100)
    buffer = pool.allocate(100, 0)
    view = memoryview(buffer)
    child = os.fork()
    if child == 0:
        del view, buffer
        os._exit(pool.available == 900)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    del view, buffer
    assert pool.available == 1000


def exhausted(pieces: int, size: int) -> tuple[BufferPool, list[PooledBuffer]]:
    """A pool whose memory is all in use, in ``pieces`` buffers of the poolable ``size``."""
    pool = BufferPool(pieces * size, size)
    return pool, [pool.allocate(size, 0) for _ in range(pieces)]


def test_a_large_request_is_not_starved() -> None:
    pool, buffers = exhausted(4, 100)
    large = PoolWaiter(pool, 350)
    small = PoolWaiter(pool, 10)
    for i in range(3):
        pool.deallocate(buffers[i])
        assert pool.waiting == 2
        assert pool.available == 0, "returned memory belongs to the first waiter"
        with pytest.raises(TimeoutError):
            pool.allocate(1, 0)
    pool.deallocate(buffers[3])
    assert large.buffer().capacity == 350
    assert small.buffer().capacity == 10
    assert pool.available == 40


def test_a_waiter_that_had_a_part_takes_a_pooled_block_instead() -> None:
    pool = BufferPool(150, 100)
    pooled, rest = pool.allocate(100, 0), pool.allocate(50, 0)
    first = PoolWaiter(pool, 100)
    second = PoolWaiter(pool, 50)
    pool.deallocate(rest)
    assert pool.available == 0
    pool.deallocate(pooled)
    assert first.buffer().capacity == 100
    assert second.buffer().capacity == 50


def test_a_waiter_that_times_out_passes_on_its_share() -> None:
    pool, buffers = exhausted(2, 100)
    large = PoolWaiter(pool, 200, timeout=1.0)
    small = PoolWaiter(pool, 60)
    pool.deallocate(buffers[0])
    assert isinstance(large.error(), TimeoutError)
    assert small.buffer().capacity == 60
    assert pool.available == 40
    pool.deallocate(buffers[1])
    assert pool.available == 140


@pytest.mark.parametrize("timed_out", [0, 1, 2])
def test_the_other_waiters_are_served_after_one_times_out(timed_out: int) -> None:
    pool, buffers = exhausted(1, 100)
    timeouts = [1.0 if i == timed_out else PATIENCE for i in range(3)]
    waiters = [PoolWaiter(pool, 100, timeout) for timeout in timeouts]
    assert isinstance(waiters.pop(timed_out).error(), TimeoutError)
    assert pool.waiting == 2
    late = PoolWaiter(pool, 100)
    free = buffers[0]
    for waiter in [*waiters, late]:
        pool.deallocate(free)
        free = waiter.buffer()
    assert pool.waiting == 0


@pytest.mark.parametrize("timeout", [1e300, float("inf")])
def test_a_wait_may_be_infinite(timeout: float) -> None:
    pool, buffers = exhausted(1, 100)
    waiter = PoolWaiter(pool, 100, timeout)
    pool.deallocate(buffers[0])
    assert waiter.buffer().capacity == 100


def test_close_wakes_every_waiter() -> None:
    pool, buffers = exhausted(2, 100)
    waiters = [PoolWaiter(pool, 150), PoolWaiter(pool, 100), PoolWaiter(pool, 1)]
    pool.deallocate(buffers[0])  # a part for the first waiter
    pool.close()
    assert all(isinstance(waiter.error(), RuntimeError) for waiter in waiters)
    assert pool.waiting == 0
    assert pool.available == 100
    pool.deallocate(buffers[1])
    assert pool.available == 200


def test_a_deleted_buffer_wakes_a_waiter() -> None:
    pool, buffers = exhausted(1, 100)
    waiter = PoolWaiter(pool, 100)
    buffers.clear()
    assert waiter.buffer().capacity == 100


def test_memory_refused_by_the_system_goes_to_the_next_waiter() -> None:
    pool = BufferPool(2**62, 100)
    most = 2**62 - 100
    buffers = [pool.allocate(100, 0)]
    greedy = PoolWaiter(pool, 2**62)
    modest = PoolWaiter(pool, 50)
    assert pool.available == 0
    pool.deallocate(buffers.pop())
    assert isinstance(greedy.error(), MemoryError)
    assert modest.buffer().capacity == 50
    assert pool.available == most + 50


def test_memory_freed_by_closing_a_batch_wakes_a_waiter() -> None:
    pool = BufferPool(3000, 1000)
    buffer = pool.allocate(1000, 0)
    builder = MemoryRecordsBuilder(
        buffer, write_limit=1000, compression=1, compression_ratio=0.1, pool=pool
    )
    while buffer.capacity == 1000:
        builder.append(0, None, b"v" * 50)
    waiter = PoolWaiter(pool, 2000)
    builder.close(lambda records: records[:100])
    assert buffer.capacity == 1000
    assert waiter.buffer().capacity == 2000


def test_many_threads_leak_no_memory() -> None:
    pool = BufferPool(1000, 100)
    failures: list[BaseException] = []

    def churn(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(400):
                take_and_return(chance)
        except Exception as error:
            failures.append(error)

    def take_and_return(chance: random.Random) -> None:
        size = chance.choice([100, 100, 100, 1, 37, 250, 1000])
        try:
            buffer = pool.allocate(size, chance.choice([0, 0.0005, PATIENCE]))
        except TimeoutError:
            return
        mark = bytes([chance.randrange(256)]) * size
        with memoryview(buffer) as view:
            view[:] = mark
            assert bytes(view) == mark
        if chance.random() < 0.9:  # else it is returned when it is deleted
            pool.deallocate(buffer)

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failures
    wait_until(lambda: not any(thread.is_alive() for thread in threads))
    assert (pool.available, pool.waiting) == (1000, 0)


@pytest.mark.parametrize("ends_by", ["memory", "time"])
def test_waiting_time_is_added_up_when_the_wait_ends(ends_by: str) -> None:
    pool, buffers = exhausted(1, 100)
    assert pool.waited == 0
    if ends_by == "time":
        with pytest.raises(TimeoutError):
            pool.allocate(100, 0.02)
        assert pool.waited >= 0.02
        return
    waiter = PoolWaiter(pool, 100)
    assert pool.waited == 0
    pool.deallocate(buffers[0])
    waiter.buffer()
    assert pool.waited > 0


def test_the_start_of_a_wait_is_reported() -> None:
    pool = BufferPool(100, 100)
    taken = pool.allocate(100, 0, lambda: pytest.fail("memory is free"))
    waiting: list[int] = []
    with pytest.raises(ZeroDivisionError):
        pool.allocate(100, PATIENCE, lambda: 1 // 0)
    assert pool.waiting == 0, "a wait whose report fails is undone"

    def free() -> None:
        waiting.append(pool.waiting)
        pool.deallocate(taken)

    again = pool.allocate(100, PATIENCE, free)
    assert (again.capacity, waiting) == (100, [1])


MAIN = threading.main_thread().ident or 0


@pytest.fixture
def _interruptible() -> Iterator[None]:
    with interruptible():
        yield


def in_background(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


@pytest.mark.usefixtures("_interruptible")
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


@pytest.mark.usefixtures("_interruptible")
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


@pytest.mark.usefixtures("_interruptible")
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
