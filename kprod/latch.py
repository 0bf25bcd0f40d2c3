"""Something that happens once, and threads that wait for it.

Like ``threading.Event``, but an exception may end a wait at any moment. A signal handler that
raises (Ctrl-C) runs between any two steps of Python code, also inside ``threading.Condition`` where
that holds its lock, which then stays held for ever. Here no lock is held while waiting, and each is
taken by a ``with`` statement on the lock itself, which is a single step: see ``kprod.lock``.
"""

from __future__ import annotations

import threading

from kprod.lock import Lock
from kprod_ext import acquire_in_rounds


class Latch:
    """Open once ``open`` was called, and from then on. Thread-safe."""

    __slots__ = ("_bells", "_lock", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._lock = Lock()  # guards _bells and opening
        # One for each thread that waits; it holds it. A tuple, for most batches are waited for by
        # nobody, and what the garbage collector has to walk over is made once per batch.
        self._bells: tuple[threading.Lock, ...] = ()

    def open(self) -> None:
        """Let every thread through. Calling it again finishes a call that was interrupted."""
        with self._lock:
            self.is_open = True
            for bell in self._bells:
                if bell.locked():  # else an interrupted call has rung it
                    bell.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds (None: without limit); True when it is open."""
        if not self.is_open:
            self._wait(_limited(timeout))
        return self.is_open

    def _wait(self, timeout: float) -> None:
        bell = threading.Lock()
        bell.acquire()
        with self._lock:
            if self.is_open:
                return
            self._bells = (*self._bells, bell)
        try:
            acquire_in_rounds(bell, timeout)
        finally:
            with self._lock:
                self._bells = tuple(other for other in self._bells if other is not bell)


def _limited(timeout: float | None) -> float:
    """As a lock takes it: -1 for no limit, and none that it refuses."""
    return -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)


class NextLatch:
    """A latch that is replaced once it is open: it opens again and again.

    It refers to nothing, so a listener that opens it keeps no producer alive. ``open`` is for any
    thread, ``following`` for one at a time.
    """

    __slots__ = ("_latch",)

    def __init__(self) -> None:
        self._latch = Latch()

    def open(self) -> None:
        """Something has happened: threads that wait go on. No exception leaves a lock held."""
        self._latch.open()

    def following(self) -> Latch:
        """What opens at the next ``open``. Take it first, look then, and wait for it last."""
        if self._latch.is_open:
            self._latch = Latch()
        return self._latch
