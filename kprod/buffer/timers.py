"""When something is due for each of many keys; only what is due costs anything."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Any

FOREVER = float("inf")
SLACK = 64
"""Entries that may be out of date before it is worth to look for them."""


class Timers:
    """One time per key, in a heap whose entries are left there when they go out of date.

    Setting and discarding take O(log n), asking for the first O(1), both amortised; the heap never
    holds more than twice as many entries as there are keys, plus ``SLACK``. Keys with equal times
    come in the order in which they were set. Not thread-safe.
    """

    __slots__ = ("_heap", "_number", "_times")

    def __init__(self) -> None:
        self._times: dict[Hashable, tuple[float, int, Any]] = {}  # each key's entry in the heap
        self._heap: list[tuple[float, int, Any]] = []
        self._number = 0

    def set(self, key: Hashable, when: float) -> None:
        """``key`` is due at ``when``, whatever it was before."""
        known = self._times.get(key)
        if known is not None and known[0] == when:
            return
        self._number += 1
        entry = (when, self._number, key)
        self._times[key] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._times) + SLACK:
            self._heap = list(self._times.values())
            heapify(self._heap)

    def set_at_latest(self, key: Hashable, when: float) -> None:
        """``key`` is due at ``when``, or earlier if it was to be."""
        known = self._times.get(key)
        if known is None or when < known[0]:
            self.set(key, when)

    def discard(self, key: Hashable) -> None:
        """Nothing is due for ``key`` any more."""
        self._times.pop(key, None)

    def first(self) -> float:
        """When the first key is due; infinite when there is none."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if self._times.get(entry[2]) is entry:
                return entry[0]
            heappop(heap)
        return FOREVER

    def take_due(self, now: float) -> list[Any]:
        """Remove the keys that are due at ``now``, in the order of their times."""
        due: list[Any] = []
        while self.first() <= now:
            key = heappop(self._heap)[2]
            del self._times[key]
            due.append(key)
        return due

    def __len__(self) -> int:
        return len(self._times)
