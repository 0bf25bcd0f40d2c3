"""For how long one turn of a loop may queue records, and tasks that wait for the next turn"""

from __future__ import annotations

import asyncio
from collections import deque

from kprod.clock import SystemClock

monotonic = SystemClock.monotonic

TURN = 64
"""Waiting tasks that are woken in one turn."""
MOST = 1024
"""Records that one turn queues at most, however little time they take."""
LONGEST = 0.001
"""Seconds for which one turn queues records, and the last few of them in addition."""
LOOK = 16
"""Records between two looks at the clock."""


class Turns:
    """Lets callers through in each turn of the loop that calls, in the order of asking.

    As many as take ``LONGEST``, for records take between half a microsecond and a hundred. Tasks
    that each only slept until the next turn would all look at once there, however many they are: so
    they wait in a row, and a turn wakes at most ``TURN`` of them. For one loop.
    """

    __slots__ = ("_admitted", "_ending", "_ends_at", "_row")

    def __init__(self) -> None:
        self._admitted = 0  # in this turn
        self._ending = False  # the end of this turn is scheduled
        self._ends_at = 0.0  # when no more are let through
        self._row: deque[asyncio.Future[None]] = deque()

    def admit(self) -> bool:
        """Whether the caller may go on at once."""
        if self._admitted % LOOK == 0 and not self._looks():
            return False
        self._admitted += 1
        return True

    def _looks(self) -> bool:
        """A look at the clock, at those who wait, and at what else ends a turn."""
        if self._admitted == 0 and not self._row:
            self._begin()
            return True
        if self._row or self._admitted >= MOST or monotonic() >= self._ends_at:
            self.spend()
            return False
        return True

    def _begin(self) -> None:
        self._ends_at = monotonic() + LONGEST
        if not self._ending:
            self._ending = True
            asyncio.get_running_loop().call_soon(self._end)

    def spend(self) -> None:
        """What was admitted took as long as all that a turn lets through."""
        self._admitted = MOST

    async def wait(self) -> None:
        """Wait for one's place in a later turn, after ``admit`` has refused."""
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        self._row.append(place)
        if not self._ending:
            self._ending = True
            loop.call_soon(self._end)
        await place

    def _end(self) -> None:
        self._admitted = 0
        while self._row and self._admitted < TURN:
            place = self._row.popleft()
            if not place.done():  # cancelled
                self._admitted += 1
                place.set_result(None)
        self._ending = self._admitted > 0
        if self._ending:
            self._ends_at = monotonic() + LONGEST
            asyncio.get_running_loop().call_soon(self._end)
