"""How tasks of an asyncio event loop wait for a batch: one call into the loop for many batches."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from kprod.errors import IllegalStateError

if TYPE_CHECKING:
    import asyncio

SLICE = 256
"""Waiters that are told in one turn of the loop. Each wakes a task, which takes some microseconds:
so few keep a turn below some milliseconds, however many records a batch holds."""


class Slices:
    """What is to be done in one loop, ``SLICE`` steps in each of its turns. Thread-safe.

    Work is an iterator that does a step whenever it is asked for the next item. One thread puts
    it in, the loop's asks. No lock: a thread that puts may be interrupted anywhere by the garbage
    collector, which may put, too.
    """

    def __init__(self) -> None:
        self._work: deque[Iterator[object]] = deque()
        self._scheduled = False

    def put(self, loop: asyncio.AbstractEventLoop, work: Iterator[object]) -> None:
        """Do it after what was put before; nothing happens when the loop is closed."""
        self._work.append(work)
        # In this order: a turn that finds no work takes the mark away, and looks once more.
        if self._scheduled:
            return
        self._scheduled = True
        try:
            loop.call_soon_threadsafe(self._turn, loop)
        except RuntimeError:  # it was closed, and its tasks with it
            self._work.clear()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        left = SLICE
        while left > 0 and self._work:
            done = sum(1 for _ in islice(self._work[0], left))
            left -= done
            if left > 0:
                self._work.popleft()
        if not self._work:
            self._scheduled = False
        if self._work:
            self._scheduled = True
            loop.call_soon(self._turn, loop)


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Slices]
_of_loops = weakref.WeakKeyDictionary()


def in_slices(loop: asyncio.AbstractEventLoop, work: Iterator[object]) -> None:
    """Do ``work`` in the loop, in turn with everything else it has to do. Any thread."""
    slices = _of_loops.get(loop)
    if slices is None:  # two threads may both make one: each does what was put into it
        slices = _of_loops[loop] = Slices()
    slices.put(loop, work)


class WaitingTasks:
    """The tasks of one loop that wait for one thing. Every method but ``ring`` in the loop."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order of asking

    def wait(self) -> Generator[Any, None, None]:
        """Wait until ``ring``. Each task has a waiter of its own: cancelling it harms no other."""
        waiter = self._loop.create_future()
        self._waiting[waiter] = None
        try:
            yield from waiter.__await__()
        finally:
            del self._waiting[waiter]

    def ring(self) -> None:
        """It has happened. Any thread; never waits, never raises."""
        in_slices(self._loop, self._wake())

    def _wake(self) -> Iterator[None]:
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_result(None)
            yield


def running_loop() -> asyncio.AbstractEventLoop:
    """The asyncio loop that runs in this thread. Raises IllegalStateError when none does."""
    import asyncio  # a caller that awaits has it loaded; `import kprod` need not

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise IllegalStateError(
            "await needs a running asyncio event loop; elsewhere, wait with get()"
        ) from None
