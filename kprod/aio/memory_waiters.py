"""Tasks that wait for buffer memory. Whenever a batch has ended, a few tasks try again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count

from kprod.aio.loop_threads import call_soon
from kprod_ext.aio import TURN
from kprod_ext.futures import FutureRecordMetadata

LONGEST_PAUSE = 0.05
"""Seconds after which the first waiters try again even if no batch has ended."""


class MemoryWaiters:
    """Lets ``TURN`` tasks at a time try to get memory, those with the nearest deadline first.

    If every task tried whenever a batch has ended, thousands of tasks would block the loop for
    memory that ten records fill. As long as tasks find memory, the next tasks try in the next
    iteration of the loop. ``oldest`` returns a record of the batch that is likely to end next. For
    the tasks of one loop; if the loop is closed, its tasks are forgotten.
    """

    def __init__(self, oldest: Callable[[], FutureRecordMetadata | None]) -> None:
        self._oldest = oldest
        self._numbers = count()
        self._begin(None)

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap
        self._timer: asyncio.TimerHandle | None = None  # while a task waits
        self._is_full = False  # a task of the current group found no memory
        self._follows = False  # the next group is scheduled

    def __bool__(self) -> bool:
        """Whether tasks of the running loop wait."""
        return bool(self._heap) and self._loop is asyncio.get_running_loop()

    async def wait(self, deadline: float) -> None:
        """Wait until the task may try again, or until ``deadline`` in the loop's time."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)
        while True:
            place = loop.create_future()
            heappush(self._heap, (deadline, next(self._numbers), place))
            self._arm(loop)
            await place
            if not self._is_full or loop.time() >= deadline:
                return

    def found_none(self) -> None:
        """Report that a task found no memory, so that the rest of its group need not try."""
        self._is_full = True

    def found_some(self) -> None:
        """Report that a task found memory after waiting, so that the next group tries."""
        if self._heap and self._loop is not None and not self._follows:
            self._follows = True
            self._loop.call_soon(self._follow)

    def _follow(self) -> None:
        self._follows = False
        if not self._is_full:
            self._let_through()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let tasks try again when a batch has ended, after a pause, or at the first deadline."""
        if self._timer is not None or not self._heap:
            return
        pause = min(LONGEST_PAUSE, self._heap[0][0] - loop.time())
        timer = self._timer = loop.call_later(max(0.0, pause), self._let_through)
        oldest = self._oldest()
        if oldest is not None:
            oldest.add_done_callback(lambda _: call_soon(loop, partial(self._batch_ended, timer)))

    def _batch_ended(self, timer: asyncio.TimerHandle) -> None:
        if timer is self._timer:
            self._let_through()

    def _let_through(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_full = False
        left = TURN
        while self._heap and left:
            _, _, place = heappop(self._heap)
            if not place.done():  # cancelled
                place.set_result(None)
                left -= 1
        if self._heap and self._loop is not None:
            self._loop.call_soon(self._arm, self._loop)  # after these have queued their records
