"""The queue between the network threads and the handlers."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

Job = Callable[[], None]
_MOST_REQUESTS: Final = 500
"""Kafka's ``queued.max.requests``."""
_PATIENCE: Final = 1.0


class RequestChannel:
    """Requests that wait for a handler, at most ``capacity`` (Kafka: RequestChannel).

    A network thread that finds it full waits: no more is read from any client, and TCP tells the
    clients. What handlers themselves add (a delayed operation that can be completed) goes past
    the limit, and first: a handler that waited for handlers would wait for ever. Thread-safe.
    """

    def __init__(self, capacity: int = _MOST_REQUESTS) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()  # guards the rest
        self._filled = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        self._requests: deque[Job] = deque()
        self._urgent: deque[Job] = deque()
        self._waiting = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._requests) + len(self._urgent)

    @property
    def waiting(self) -> int:
        """How many handlers have nothing to do."""
        return self._waiting

    def put(self, job: Job) -> None:
        """Add a request; waits while there are too many. Dropped once closed."""
        with self._lock:
            while len(self._requests) >= self._capacity and not self._closed:
                self._drained.wait(_PATIENCE)
            if not self._closed:
                self._requests.append(job)
                self._wake()

    def put_urgent(self, job: Job) -> None:
        """Add what must not wait. Runs even after ``close``, as long as handlers are left."""
        with self._lock:
            self._urgent.append(job)
            self._wake()

    def _wake(self) -> None:
        """Wake a handler. Once a job is in the queue, it is the queue's: nothing is raised."""
        with contextlib.suppress(MemoryError):
            self._filled.notify()

    def take(self) -> Job | None:
        """The next job; waits for one. None once closed and empty."""
        with self._lock:
            while not self._urgent and not self._requests:
                if self._closed:
                    return None
                self._waiting += 1
                try:
                    # Not for ever: a wake-up is lost when there is no memory for it.
                    self._filled.wait(_PATIENCE)
                finally:
                    self._waiting -= 1
            if self._urgent:
                return self._urgent.popleft()
            self._drained.notify()
            return self._requests.popleft()

    def close(self) -> None:
        """No more requests; handlers finish those there are. Idempotent."""
        with self._lock:
            self._closed = True
            self._filled.notify_all()
            self._drained.notify_all()
