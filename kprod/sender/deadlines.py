"""What the sender has to do: a queue of what was asked for, a heap of what happens by time.

And the calls of other threads that wait until it has done something for them.
"""

from __future__ import annotations

import copy
from collections import deque
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from kprod.errors import KprodError
from kprod.latch import Latch
from kprod.lock import Lock

FOREVER = float("inf")
SLACK = 8
"""Entries that are out of date and may be left before the heap is made anew."""


class Owner(Protocol):
    """Something with a deadline. ``due`` is its time, infinite for none; only Deadlines sets it."""

    due: float

    def fire(self, now: float) -> None:
        """Look what is to be done: the deadline has come, and is set no more, or it was queued."""
        ...


class Deadlines:
    """The deadlines of all owners, on one clock. Thread: the sender's only, but for ``queued``.

    ``queued``: owners to which something has happened. Any thread appends to it, after the change
    that the owner is to see, and wakes the sender if it may sleep.
    ``first``: when the first deadline comes, infinite without one. A deadline that is set anew or
    withdrawn leaves its entry in the heap until it comes up, or until such entries are more than
    the others.
    """

    __slots__ = ("_armed", "_heap", "_number", "first", "queued")

    def __init__(self) -> None:
        self.queued: deque[Owner] = deque()
        self._heap: list[tuple[float, int, Owner]] = []
        self._armed = 0  # owners with a deadline
        self._number = 0
        self.first = FOREVER

    def set(self, owner: Owner, when: float) -> None:
        """Set the deadline of ``owner``; infinite: withdraw it."""
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
        """Call each owner whose deadline has come, then each that is queued.

        What they set or queue comes later.
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
    """One call. ``ended`` opens with its outcome; ``error`` is the reason if it has none."""

    __slots__ = ("ended", "error")

    def __init__(self) -> None:
        self.ended = Latch()
        self.error: KprodError | None = None


_P = TypeVar("_P", bound=Pending)


class PendingQueue(Generic[_P]):
    """The calls without an outcome, oldest first. Thread-safe.

    ``calls`` may be read without a lock: a call that is added meanwhile wakes the sender.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards both
        self.calls: deque[_P] = deque()
        self._closed_by: KprodError | None = None

    def __bool__(self) -> bool:
        return bool(self.calls)

    def add(self, call: _P) -> None:
        """Queue ``call``; a closed queue ends it at once."""
        with self._lock:
            closed_by = self._closed_by
            if closed_by is None:
                self.calls.append(call)
        if closed_by is not None:
            self.end(call, copy.copy(closed_by))

    def withdraw(self, call: _P) -> None:
        """Forget ``call``: its caller has stopped waiting."""
        with self._lock:
            if call in self.calls:
                self.calls.remove(call)

    def next(self) -> _P | None:
        """The oldest call, or None."""
        with self._lock:
            return self.calls[0] if self.calls else None

    def end(self, call: _P, error: KprodError | None = None) -> None:
        """``call`` has its outcome: the result that was set before, or ``error``."""
        call.error = error
        self.withdraw(call)
        call.ended.open()

    def close(self, error: KprodError) -> None:
        """End every call in ``error``, also later ones."""
        with self._lock:
            self._closed_by = error
            calls = list(self.calls)
        for call in calls:
            self.end(call, error)
