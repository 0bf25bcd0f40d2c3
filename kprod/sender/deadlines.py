"""What the sender must do: a queue of what others have asked for, and a heap of deadlines.

It also contains the calls of other threads that wait for the sender.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Protocol

from kprod.errors import KprodError
from kprod.latch import Latch

FOREVER = float("inf")
SLACK = 8
"""The number of outdated entries that the heap may have before it is rebuilt."""


class Owner(Protocol):
    """Something with a deadline. ``due`` is its time, or infinite. Only Deadlines sets it."""

    due: float

    def fire(self, now: float) -> None:
        """Do what is due: the owner was queued, or its deadline has come, and is now removed."""
        ...


class Deadlines:
    """The deadlines of all owners, on one clock. For the owner of the loop, except ``queued``.

    ``queued``: owners to which something has happened. Any thread may append to it, after it has
    made the change that the owner must see. That thread then wakes the sender if the sender may be
    waiting.

    ``first``: the time of the first deadline, or infinity. A deadline that is changed or withdrawn
    leaves an outdated entry in the heap. Such entries are removed when they come first, or when
    they outnumber the others by more than ``SLACK``.
    """

    __slots__ = ("_armed", "_heap", "_number", "first", "queued")

    def __init__(self) -> None:
        self.queued: deque[Owner] = deque()
        self._heap: list[tuple[float, int, Owner]] = []
        self._armed = 0  # owners with a deadline
        self._number = 0
        self.first = FOREVER

    def set(self, owner: Owner, when: float) -> None:
        """Set the deadline of ``owner``. An infinite ``when`` withdraws it."""
        if when == owner.due:
            return
        self._armed += (when < FOREVER) - (owner.due < FOREVER)
        was_first = owner.due == self.first
        owner.due = when
        if when < FOREVER:
            self._number += 1
            heappush(self._heap, (when, self._number, owner))
        if len(self._heap) > 2 * self._armed + SLACK:
            self._heap = [entry for entry in self._heap if entry[2].due == entry[0]]
            heapify(self._heap)
        if when < self.first:
            self.first = when
        elif was_first:
            self._find_first()

    def _find_first(self) -> None:
        heap = self._heap
        while heap and heap[0][2].due != heap[0][0]:
            heappop(heap)
        self.first = heap[0][0] if heap else FOREVER

    def fire(self, now: float) -> None:
        """Call each owner whose deadline has come, then each owner that is queued.

        What these calls set or queue is handled by the next ``fire``.
        """
        if self.first <= now:
            self._fire_due(now)
        for _ in range(len(self.queued)):
            owner = self.queued.popleft()
            if not self.queued or self.queued[0] is not owner:
                owner.fire(now)

    def _fire_due(self, now: float) -> None:
        due: list[Owner] = []
        while self.first <= now:
            owner = heappop(self._heap)[2]
            owner.due = FOREVER
            self._armed -= 1
            due.append(owner)
            self._find_first()
        for owner in due:
            owner.fire(now)


class Pending:
    """A call of another thread. ``ended`` opens when it is over; ``error`` is set if it failed."""

    __slots__ = ("ended", "error")

    def __init__(self) -> None:
        self.ended = Latch()
        self.error: KprodError | None = None

    def end(self, error: KprodError | None = None) -> None:
        """End the call with ``error``, or with the result that was set, unless it has ended."""
        if not self.ended.is_open:
            self.error = error
            self.ended.open()
