"""A due time for each of many keys; only keys that are due cost time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Any

FOREVER = float("inf")
SLACK = 64
"""Stale entries that may be left before a search for them pays."""


class Timers:
    """One time per key, in a line or a heap. Both keep stale entries until these come first.

    Times that come in order, as most do, stand in line; the others are in the heap. Setting
    and discarding take O(1) for the former and O(log n) for the latter, asking for the first O(1),
    all amortised; there are never more than twice as many entries as keys, plus ``SLACK``. Keys
    with equal times come in the order in which they were set. Not thread-safe.
    """

    __slots__ = ("_heap", "_line", "_number", "_times")

    def __init__(self) -> None:
        self._times: dict[Hashable, tuple[float, int, Any]] = {}  # each key's entry
        self._line: deque[tuple[float, int, Any]] = deque()
        self._heap: list[tuple[float, int, Any]] = []
        self._number = 0

    def set(self, key: Hashable, when: float) -> None:
        """Set the time of ``key`` to ``when``."""
        known = self._times.get(key)
        if known is not None and known[0] == when:
            return
        self._number += 1
        entry = (when, self._number, key)
        self._times[key] = entry
        self._queue(entry, when)
        self._drop_stale()

    def _queue(self, entry: tuple[float, int, Any], when: float) -> None:
        line = self._line
        while line:
            last = line[-1]
            if last[0] <= when:
                break
            if self._times.get(last[2]) is last:
                heappush(self._heap, entry)
                return
            line.pop()  # stale: the new entry may come before it
        line.append(entry)

    def set_at_latest(self, key: Hashable, when: float) -> None:
        """Set the time of ``key`` to ``when``, unless it has an earlier one."""
        known = self._times.get(key)
        if known is None or when < known[0]:
            self.set(key, when)

    def discard(self, key: Hashable) -> None:
        """Remove ``key``, if it has a time."""
        if self._times.pop(key, None) is not None:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Free stale entries and their keys once they are many."""
        if len(self._line) + len(self._heap) <= 2 * len(self._times) + SLACK:
            return
        self._times = dict(self._times)  # a dict never shrinks by itself
        self._line, self._heap = deque(sorted(self._times.values())), []

    def first(self) -> float:
        """When the first key is due; infinite without one."""
        entry = self._first()
        return FOREVER if entry is None else entry[0]

    def _first(self) -> tuple[float, int, Any] | None:
        """The entry of the first key, if any. Removes stale entries before it."""
        times, line, heap = self._times, self._line, self._heap
        while line:
            entry = line[0]
            if times.get(entry[2]) is entry:
                break
            line.popleft()
        while heap:
            other = heap[0]
            if times.get(other[2]) is other:
                return other if not line or other < line[0] else line[0]
            heappop(heap)
        return line[0] if line else None

    def take_due(self, now: float) -> list[Any]:
        """Remove the keys that are due at ``now``, in the order of their times."""
        due: list[Any] = []
        while (entry := self._first()) is not None and entry[0] <= now:
            del self._times[entry[2]]  # which makes the entry stale
            due.append(entry[2])
        return due

    def __len__(self) -> int:
        return len(self._times)
