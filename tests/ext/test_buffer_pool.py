"""One thread and a pool: what is counted, kept and refused."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

import pytest

from kprod_ext import BufferPool, PooledBuffer


@pytest.mark.parametrize("size", [1001, 0, -1, sys.maxsize])
def test_sizes_no_pool_of_1000_has(size: int) -> None:
    pool = BufferPool(1000, 100)
    with pytest.raises(ValueError, match="cannot allocate"):
        pool.allocate(size, 0)
    assert pool.available == 1000


@pytest.mark.parametrize("timeout", [0, -1.0, float("-inf")])
def test_an_exhausted_pool_refuses_at_once_when_told_not_to_wait(timeout: float) -> None:
    pool = BufferPool(1000, 100)
    kept = pool.allocate(950, 0)
    with pytest.raises(TimeoutError):
        pool.allocate(51, timeout)
    assert pool.available == 50
    pool.deallocate(kept)


def address(buffer: PooledBuffer) -> int:
    """Where its memory is."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def test_memory_of_the_poolable_size_is_reused() -> None:
    pool = BufferPool(1000, 100)
    buffers = [pool.allocate(100, 0) for _ in range(10)]
    places = {address(buffer) for buffer in buffers}
    for buffer in buffers:
        pool.deallocate(buffer)
    assert pool.available == 1000
    assert {address(pool.allocate(100, 0)) for _ in range(10)} <= places


def test_views_are_counted() -> None:
    buffer = BufferPool(1000, 100).allocate(100, 0)
    assert buffer.lent == 0
    view = memoryview(buffer)
    part = view[10:20]
    assert buffer.lent == 1, "slices of a view share its loan"
    other = memoryview(buffer)
    assert buffer.lent == 2
    del view, other
    assert buffer.lent == 1
    part.release()
    assert buffer.lent == 0


def test_memory_with_a_view_out_is_not_reused() -> None:
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


def test_a_lost_buffer_is_no_lost_memory() -> None:
    pool = BufferPool(1000, 100)
    buffer = pool.allocate(400, 0)
    view = memoryview(buffer)
    del buffer
    gc.collect()
    assert pool.available == 600, "its view still holds it"
    del view
    assert pool.available == 1000


def test_a_pool_lives_as_long_as_its_buffers() -> None:
    buffer = BufferPool(1000, 100).allocate(100, 0)
    gc.collect()
    memoryview(buffer)[:] = bytes(100)


def test_more_than_the_system_has() -> None:
    pool = BufferPool(2**62, 100)
    with pytest.raises(MemoryError):
        pool.allocate(2**61, 0)
    assert pool.available == 2**62


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # there is a thread: the timeout's
def test_a_forked_child_gives_nothing_back() -> None:
    """A thread of the parent may have held the lock, which then stays held in the child."""
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
