"""A lock is one as ``threading.Lock`` is; neither Ctrl-C nor a lack of memory leaves it held."""

from __future__ import annotations

import threading

import pytest

from kprod.lock import Lock
from tests.support.interruption import interruptible, repeat_until_interrupted

LONG = 20.0
WHILE_HELD = LookupError()
ENDS = (LookupError, MemoryError)  # raising takes memory; and so would this tuple, in an except


def test_it_is_held_within_the_block_and_not_after_it() -> None:
    lock = Lock()
    came: list[None] = []

    def come() -> None:
        with lock:
            came.append(None)

    other = threading.Thread(target=come)
    with lock:
        other.start()
        other.join(0.05)
        assert came == []
    other.join(LONG)
    assert came == [None]


def test_it_is_released_when_the_block_raises() -> None:
    lock = Lock()
    with pytest.raises(LookupError), lock:
        raise LookupError
    with lock:
        pass


def test_it_may_be_taken_without_a_block() -> None:
    lock = Lock()
    assert lock.acquire()
    lock.release()
    with lock:
        pass


def test_an_exception_at_any_moment_of_a_block_leaves_it_free() -> None:
    lock = Lock()

    def enter() -> None:
        with lock:
            pass

    with interruptible():
        for number in range(2000):
            repeat_until_interrupted(enter, 0.0002 + number * 1e-7)
            other = threading.Thread(target=enter, daemon=True)
            other.start()
            other.join(LONG)
            assert not other.is_alive(), "an interrupted block has left the lock held"


@pytest.mark.alone  # no allocation fails for threads that other tests left behind
@pytest.mark.parametrize("raises", [False, True])
def test_leaving_takes_no_memory(raises: bool) -> None:
    hooks = pytest.importorskip("_testcapi", reason="this Python lacks its hooks into malloc")
    lock = Lock()

    def leave() -> None:
        with lock:
            hooks.set_nomemory(0, 0)  # from here on there is none
            if raises:
                raise WHILE_HELD

    kept = [(n, n, n) for n in range(10_000)]  # Python keeps tuples for later: these are used up
    try:
        leave()
    except ENDS:
        pass
    finally:
        hooks.remove_mem_hooks()
    assert kept
    with lock:
        pass
