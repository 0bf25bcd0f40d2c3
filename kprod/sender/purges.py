"""Records that the application gives up: asked for by any thread, ended by the sender's"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kprod.errors import KprodError
from kprod.latch import Latch


class Purge(NamedTuple):
    """Which records end in ``error``: queued ones, those on their way. ``done``: they have."""

    error: KprodError
    queued: bool
    in_flight: bool
    done: Latch


class Purges:
    """Those that wait for the sender's next turn. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: deque[Purge] = deque()
        self._closed = False

    def put(self, purge: Purge) -> None:
        """Let the sender's next turn see to it; after ``close`` nothing is left to be purged."""
        self._waiting.append(purge)
        if self._closed:  # looked at last: ``close``, which sets it first, may have missed this one
            self.close()

    def take(self) -> Purge | None:
        """The oldest, if there is one."""
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Every record has its outcome, and none follows."""
        self._closed = True
        while self._waiting:
            try:
                purge = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            purge.done.open()
