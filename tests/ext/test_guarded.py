"""A lock within an object, and objects that the garbage collector passes over."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from kprod_ext.futures import track, untrack
from kprod_ext.guarded import Guarded

LONG = 20.0


class Counter(Guarded):
    """What threads would count wrongly without a lock."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, times: int) -> None:
        for _ in range(times):
            self.take_lock()
            try:
                count = self.count
                time.sleep(0)  # lets another thread run here
                self.count = count + 1
            finally:
                self.release_lock()


def test_one_thread_at_a_time_has_it() -> None:
    counter = Counter()
    threads = [threading.Thread(target=counter.add, args=(200,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert counter.count == 800


def test_who_waits_for_it_lets_others_run() -> None:
    guarded, taken = Guarded(), threading.Event()

    def take() -> None:
        guarded.take_lock()
        taken.set()
        guarded.release_lock()

    guarded.take_lock()
    waiting = threading.Thread(target=take)
    waiting.start()
    assert not taken.wait(0.1)  # which could not end if the other thread kept the interpreter
    guarded.release_lock()
    assert taken.wait(LONG)
    waiting.join(LONG)


def test_each_object_has_its_own() -> None:
    one, other = Guarded(), Guarded()
    one.take_lock()
    other.take_lock()
    one.release_lock()
    one.take_lock()


def test_it_is_nothing_to_the_garbage_collector() -> None:
    assert not gc.is_tracked(Guarded())


@pytest.mark.parametrize("times", [1, 2])
def test_the_collector_sees_what_it_is_told_to(times: int) -> None:
    ring: list[object] = []
    ring.append(ring)
    for _ in range(times):
        untrack(ring)
        assert not gc.is_tracked(ring)
    for _ in range(times):
        track(ring)
        assert gc.is_tracked(ring)
