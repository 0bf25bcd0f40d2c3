"""Requests that wait for a partition."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kprod.broker.purgatory import Purgatory, Timer
from kprod.clock import SystemClock

LONG = 3_600.0


class Waiting:
    """An operation that is complete once ``ready``; counts how often it was tried."""

    def __init__(self) -> None:
        self.ready = False
        self.attempts: list[bool] = []
        self.completed = 0

    def __call__(self, last: bool) -> bool:
        self.attempts.append(last)
        complete = self.ready or last
        self.completed += complete
        return complete


class Rig:
    """A purgatory whose handlers run when the test says so."""

    def __init__(self) -> None:
        self.timer = Timer(SystemClock())
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.purgatory = Purgatory(self.timer, self.jobs.put)

    def run(self) -> int:
        """Run what was submitted; returns how much it was."""
        count = 0
        while not self.jobs.empty():
            self.jobs.get()()
            count += 1
        return count


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.timer.close()


def test_only_those_who_wait_for_the_key_are_woken(rig: Rig) -> None:
    a, b = Waiting(), Waiting()
    rig.purgatory.watch(["x", "y"], LONG, a)
    rig.purgatory.watch(["y"], LONG, b)
    rig.purgatory.wake("x")
    rig.run()
    assert (a.attempts, b.attempts) == ([False, False], [False])
    b.ready = True
    rig.purgatory.wake("y")
    rig.run()
    assert (a.completed, b.completed) == (0, 1)


def test_it_is_completed_once(rig: Rig) -> None:
    a = Waiting()
    rig.purgatory.watch(["x", "y"], LONG, a)
    a.ready = True
    rig.purgatory.wake("x")
    rig.purgatory.wake("y")
    assert rig.run() == 1
    rig.purgatory.wake("x")
    rig.purgatory.close()
    assert rig.run() == 0
    assert a.completed == 1


def test_what_happens_during_an_attempt_is_not_missed(rig: Rig) -> None:
    seen: list[bool] = []

    def attempt(last: bool) -> bool:
        if not seen:
            rig.purgatory.wake("x")
        seen.append(last)
        return len(seen) == 2

    rig.purgatory.watch(["x"], LONG, attempt)
    assert seen == [False, False]


def test_the_time_is_over(rig: Rig) -> None:
    a, b = Waiting(), Waiting()
    rig.purgatory.watch(["x"], 0, a)
    assert a.attempts == [True]
    rig.purgatory.watch(["x"], 0.01, b)
    while len(b.attempts) < 2:  # on a slow machine it is over before `watch` returns: no job then
        with suppress(queue.Empty):
            rig.jobs.get(timeout=0.1)()
    assert b.attempts == [False, True]


def test_closing_completes_all_and_later_ones_at_once(rig: Rig) -> None:
    before, after = Waiting(), Waiting()
    rig.purgatory.watch(["x"], LONG, before)
    rig.purgatory.close()
    rig.run()
    rig.purgatory.watch(["x"], LONG, after)
    assert (before.attempts, after.attempts) == ([False, True], [True])


def test_an_error_of_an_attempt_ends_the_operation(rig: Rig) -> None:
    def attempt(last: bool) -> bool:
        raise ValueError("a fault of the handler")

    with pytest.raises(ValueError, match="a fault"):
        rig.purgatory.watch(["x"], LONG, attempt)
    rig.purgatory.wake("x")
    assert rig.run() == 0
