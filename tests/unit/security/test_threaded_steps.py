"""Steps of logins that wait for others: how many threads they take, and that each has its turn."""

from __future__ import annotations

import threading

import pytest

from kprod.errors import SaslAuthenticationError
from kprod.security.threaded_steps import MOST_THREADS, MOST_WAITING, StepThreads, ThreadedSteps


class Slow:
    """A conversation whose first message is not ready before ``ready`` is set."""

    def __init__(self, ready: threading.Event, mistake: bool = False) -> None:
        self._ready = ready
        self._mistake = mistake

    def respond(self, challenge: bytes | None) -> bytes | None:
        assert self._ready.wait(60)
        if self._mistake:
            raise RuntimeError("secret")
        return b"token"


def threads() -> int:
    return sum(thread.name == "kprod-login" for thread in threading.enumerate())


def test_a_provider_that_hangs_takes_few_threads_however_often_it_is_tried() -> None:
    ready, told = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    before = threads()
    steps = [ThreadedSteps(Slow(ready), told.release, shared) for _ in range(3 * MOST_THREADS)]
    for each in steps:
        each.begin(None)
    assert threads() - before <= MOST_THREADS
    assert [each.take() for each in steps] == [None] * len(steps)
    ready.set()
    for _ in steps:
        assert told.acquire(timeout=60)
    assert {each.take() for each in steps} == {(b"token",)}


def test_a_mistake_leaves_the_others_their_turn() -> None:
    ready, told = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    steps = [
        ThreadedSteps(Slow(ready, True), told.release, shared) for _ in range(MOST_THREADS + 9)
    ]
    for each in steps:
        each.begin(None)
    ready.set()
    for _ in steps:
        assert told.acquire(timeout=60)
    for each in steps:
        with pytest.raises(SaslAuthenticationError, match="RuntimeError"):
            each.take()


def test_a_thread_that_cannot_start_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile another step has begun to wait, as it was counted already."""
    ready, told = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    steps = [ThreadedSteps(Slow(ready), told.release, shared) for _ in range(MOST_THREADS + 1)]
    *first, waiting = steps[:MOST_THREADS]
    for each in first:
        each.begin(None)

    def fail(_: threading.Thread) -> None:
        waiting.begin(None)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            steps[-1].begin(None)
    ready.set()
    for _ in (*first, waiting):
        assert told.acquire(timeout=5)
    assert waiting.take() == (b"token",)


def test_steps_that_wait_are_forgotten_when_they_are_too_many() -> None:
    """A producer whose provider hangs for days tries again and again."""
    ready, told = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    for _ in range(MOST_THREADS + MOST_WAITING + 50):
        ThreadedSteps(Slow(ready), told.release, shared).begin(None)
    ready.set()
    for _ in range(MOST_THREADS + MOST_WAITING):
        assert told.acquire(timeout=60)
    last = ThreadedSteps(Slow(ready), told.release, shared)
    last.begin(None)
    assert told.acquire(timeout=60)
    assert last.take() == (b"token",)
    assert not told.acquire(blocking=False)
