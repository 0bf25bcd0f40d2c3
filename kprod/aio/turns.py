"""How many records one turn of a loop may queue, and tasks that wait for the next turn"""

from __future__ import annotations

import asyncio
from collections import deque

TURN = 64
"""Records that are queued before other tasks of the loop get a turn."""


class Turns:
    """Lets ``TURN`` callers through in each turn of the loop that calls, in the order of asking.

    Tasks that each only slept until the next turn would all look at once there, however many they
    are: so they wait in a row, and a turn wakes as many as it lets through. For one loop.
    """

    def __init__(self) -> None:
        self._admitted = 0  # in this turn
        self._ending = False  # the end of this turn is scheduled
        self._row: deque[asyncio.Future[None]] = deque()

    def admit(self) -> bool:
        """Whether the caller may go on at once."""
        if self._row or self._admitted >= TURN:
            return False
        self._admitted += 1
        if not self._ending:
            self._ending = True
            asyncio.get_running_loop().call_soon(self._end)
        return True

    def spend(self) -> None:
        """What was admitted took as long as all that a turn lets through."""
        self._admitted = TURN

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
            asyncio.get_running_loop().call_soon(self._end)
