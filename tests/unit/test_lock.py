"""A lock is one as ``threading.Lock`` is; Ctrl-C does not leave it held."""

from __future__ import annotations

import threading

from kprod.lock import Lock
from tests.support.interruption import interruptible, repeat_until_interrupted

LONG = 20.0


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
