"""Latches: events that happen once, and for which threads wait.

A latch is like ``threading.Event``, but stays usable if an exception ends a wait at any moment. A
signal handler may run, and raise (Ctrl-C), between any two steps of Python code. If that happens
inside ``threading.Condition`` while it holds its lock, the lock stays held for ever. A latch holds
no lock while a thread waits. It takes its own lock by a ``with`` statement, which is a single step
(see ``kprod.lock``).
"""

from __future__ import annotations

import threading

from kprod.lock import Lock
from kprod_ext import acquire_in_rounds


class Latch:
    """Opens when ``open`` is called, and stays open. Thread-safe."""

    __slots__ = ("_bells", "_lock", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._lock = Lock()  # guards _bells and opening
        # One lock per waiting thread, which holds it. A tuple, because there is a latch per batch,
        # most have no waiting thread, and the garbage collector does not track an empty tuple.
        self._bells: tuple[threading.Lock, ...] = ()

    def open(self) -> None:
        """Release all waiting threads. A second call completes an interrupted first call."""
        with self._lock:
            self.is_open = True
            for bell in self._bells:
                if bell.locked():  # otherwise an interrupted call has released it
                    bell.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds (None: no limit); return whether the latch is open."""
        # As a lock takes it: -1 for no limit, and none that it refuses.
        limit = -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
        bell = threading.Lock()
        bell.acquire()
        with self._lock:
            if self.is_open:
                return True
            self._bells = (*self._bells, bell)
        try:
            acquire_in_rounds(bell, limit)
        finally:
            with self._lock:
                others = list(self._bells)
                others.remove(bell)
                self._bells = tuple(others)
        return self.is_open


class NextLatch:
    """A latch that is replaced whenever it opens, so that it can open again.

    A NextLatch has no reference to the producer. So a listener with a reference to a NextLatch does
    not keep the producer alive. Any thread may call ``open``; one thread at a time may call
    ``following``.
    """

    __slots__ = ("_latch",)

    def __init__(self) -> None:
        self._latch = Latch()

    def open(self) -> None:
        """Release the waiting threads. No exception leaves a lock held."""
        self._latch.open()

    def following(self) -> Latch:
        """Return the latch that ``open`` will open next.

        First get this latch, then check the condition, and then wait.
        """
        if self._latch.is_open:
            self._latch = Latch()
        return self._latch
