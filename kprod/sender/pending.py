"""Calls of other threads that wait for the sender, and the queue that it takes them from."""

from __future__ import annotations

import copy
from collections import deque
from typing import Generic, TypeVar

from kprod.errors import KprodError
from kprod.latch import Latch
from kprod.lock import Lock


class Pending:
    """One call. ``ended`` opens with its outcome; ``error`` is the reason if it has none.

    ``asked``: a request for it is on its way (the sender's thread only).
    """

    __slots__ = ("asked", "ended", "error")

    def __init__(self) -> None:
        self.asked = False
        self.ended = Latch()
        self.error: KprodError | None = None


_P = TypeVar("_P", bound=Pending)


class PendingQueue(Generic[_P]):
    """The calls without an outcome, oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards both
        self._calls: deque[_P] = deque()
        self._closed_by: KprodError | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: _P) -> None:
        """Queue ``call``; a closed queue ends it at once."""
        with self._lock:
            closed_by = self._closed_by
            if closed_by is None:
                self._calls.append(call)
        if closed_by is not None:
            self.end(call, copy.copy(closed_by))

    def withdraw(self, call: _P) -> None:
        """Forget ``call``: its caller has stopped waiting."""
        with self._lock:
            if call in self._calls:
                self._calls.remove(call)

    def next(self) -> _P | None:
        """The oldest call that no request has asked yet, or None."""
        if not self._calls:  # a call that is added meanwhile wakes the sender
            return None
        with self._lock:
            return next((call for call in self._calls if not call.asked), None)

    def end(self, call: _P, error: KprodError | None = None) -> None:
        """``call`` has its outcome: the result that was set before, or ``error``."""
        call.error = error
        self.withdraw(call)
        call.ended.open()

    def close(self, error: KprodError) -> None:
        """End every call in ``error``, also later ones."""
        with self._lock:
            self._closed_by = error
            calls = list(self._calls)
        for call in calls:
            self.end(call, error)
