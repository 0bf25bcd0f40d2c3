"""What waits in a queue is neither forgotten nor kept for ever when memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.delivery import BatchDelivery
from kprod.errors import ProducerClosedError
from kprod.types import TopicPartition
from kprod_ext import BufferPool, PooledBuffer
from tests.support.failing_malloc import LISTS_CRASH, keep_code

hooks = pytest.importorskip("_testcapi", reason="this Python comes without its hooks into malloc")

pytestmark = [
    pytest.mark.alone,  # no allocation fails for threads that other tests left behind
    pytest.mark.skipif(LISTS_CRASH, reason="this Python crashes where a list finds no memory"),
]

ALLOCATIONS = 40
SIZE = 1000


def fails(work: Callable[[], object], first: int, width: int) -> bool:
    """Whether ``work`` raised MemoryError while these allocations failed."""
    floats = [n * 1.1 for n in range(400)]  # so that the interpreter has no free ones left
    gc.disable()
    hooks.set_nomemory(first, first + width)
    try:
        work()
    except (MemoryError, SystemError):  # the latter by Python itself, for a frame
        return True
    except TimeoutError:
        return False
    finally:
        hooks.remove_mem_hooks()
        gc.enable()
        del floats
    return False


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_a_call_that_waits_for_memory_gives_back_what_it_was_given(
    served: bool, width: int
) -> None:
    keep_code()
    failures = 0
    for number in range(ALLOCATIONS):
        pool = BufferPool(SIZE, SIZE)
        buffers = [pool.allocate(SIZE, 0)]

        def free(pool: BufferPool = pool, buffers: list[PooledBuffer] = buffers) -> None:
            while buffers:
                pool.deallocate(buffers.pop())

        def wait(pool: BufferPool = pool, free: Callable[[], None] = free) -> None:
            pool.allocate(SIZE, 0.01, free if served else None)

        failures += fails(wait, number, width)
        free()
        assert (pool.available, pool.waiting) == (SIZE, 0), f"allocation {number}"
    assert failures > 3


def test_callbacks_that_found_no_memory_are_called_when_the_producer_ends() -> None:
    keep_code()
    callbacks = Callbacks("callbacks under test")
    callbacks.start()
    failures = 0
    for number in range(ALLOCATIONS):
        told: list[int] = []
        delivery = BatchDelivery(TopicPartition("t", 0), lambda: None, callbacks)
        delivery.on_done(partial(told.append, 1))
        if fails(partial(delivery.succeed, 5, -1), number, 1):
            failures += 1
            delivery.fail(ProducerClosedError("its sender found no memory"))
        assert callbacks.drain(20)
        assert told == [1], f"allocation {number}"
    callbacks.stop()
    assert callbacks.drain(20)
    assert failures > 1
