"""Runs the application's callbacks in a separate thread, so that they do not delay the network."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeAlias

from kprod.latch import Latch
from kprod.lock import Lock

log = logging.getLogger(__name__)

Callback: TypeAlias = Callable[[], object]

MOST_WAITING = 100_000
"""Callbacks that may wait before ``send`` waits for them; librdkafka has the same limit."""
MOST_PATIENCE = 0.01
"""Maximum seconds to wait for callbacks that are running."""
LAST_STEPS = 1.0
"""Maximum seconds to wait for a thread that has nothing left to do; it takes microseconds."""


class Callbacks:
    """Runs callbacks one after the other, in the order in which they were put. Thread-safe.

    They run in a daemon thread that starts with ``start``, or with the first callback. A callback
    that blocks delays other callbacks, but no request and no response. Callbacks run at once in the
    thread that puts them if there is no ``thread_name``, after ``stop``, and if the system cannot
    start a thread.

    ``crowded`` becomes True when more than ``most_waiting`` callbacks wait, and False once only
    half as many wait. ``ident`` is the ident of the thread while it runs, and 0 before and after
    that, because the system reuses idents.
    """

    def __init__(self, thread_name: str | None = None, most_waiting: int = MOST_WAITING) -> None:
        self.crowded = False
        self.ident = 0
        self._most_waiting = most_waiting
        self._thread_name = thread_name
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[Sequence[Callback] | Latch | None] = SimpleQueue()
        self._lock = Lock()  # guards what follows, _thread and crowded
        self._stopped = thread_name is None
        self._put = 0
        self._room = Latch()  # opens when it is no longer crowded
        self._running = Lock()  # held while the callbacks of one `put` run
        self._ran = 0  # by the callbacks' thread only
        self._abandoned = False
        self._ended = Latch()

    @property
    def is_current(self) -> bool:
        """True in the callback thread."""
        return self.ident == threading.get_ident()

    @property
    def waiting(self) -> int:
        """The number of callbacks that were put and have not returned."""
        return self._put - self._ran

    def start(self) -> None:
        """Start the thread before it is needed: it takes longer than settling a batch."""
        with self._lock:
            self._has_thread()

    def put(self, callbacks: Sequence[Callback]) -> None:
        """Run ``callbacks`` after all callbacks that were put before. They must not raise."""
        if not self.leave(callbacks):
            for callback in callbacks:
                callback()

    def leave(self, callbacks: Sequence[Callback]) -> bool:
        """Like ``put``, but without a thread for the callbacks, run nothing and return False."""
        with self._lock:
            if not self._has_thread():
                return False
            # First: once they are in the queue, the thread may run them all, and let callers in.
            self._put += len(callbacks)
            self.crowded = self.crowded or self.waiting > self._most_waiting
            self._queue.put(callbacks)
            return True

    def _has_thread(self) -> bool:
        if self._thread is None and not self._stopped:
            thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no threads left, or the interpreter exits
                log.warning("no thread for delivery callbacks: they run where records are settled")
                self._stopped = True
            else:
                self._thread = thread
        return not self._stopped

    # Waiting for callbacks ------------------------------------------------------------------------

    def await_room(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds while ``crowded``. Returns at once in a callback."""
        with self._lock:
            room = self._room
            if not self.crowded or self.is_current:
                return True
            if room.is_open:
                room = self._room = Latch()
        return room.wait(timeout)

    def drain(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until all callbacks put so far have returned."""
        passed = Latch()
        with self._lock:
            if self._thread is None or not (self._stopped or self.waiting):
                return True
            if not self._stopped:
                self._queue.put(passed)
        return self._has_ended(timeout) if self._stopped else passed.wait(timeout)

    def _has_ended(self, timeout: float) -> bool:
        """Wait until the last callback has returned, and the thread has ended."""
        if not self._ended.wait(timeout):
            return False
        thread = self._thread
        # A finalizer that closes a producer may run in this very thread, in its last steps.
        if thread is not None and thread.ident != threading.get_ident():
            thread.join(LAST_STEPS)
        return True

    # The end --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the thread once it has run all callbacks. ``drain`` waits for that."""
        with self._lock:
            if self._thread is not None and not self._stopped:
                self._queue.put(None)
            self._stopped = True
            self.crowded = False
            self._room.open()

    def abandon(self) -> None:
        """Start no more callbacks, because the process ends."""
        self._abandoned = True

    def hold_up(self) -> bool:
        """Hold back callbacks from now on; return False if a running one does not return soon.

        For a caller with a deadline, which would have to share the GIL with callbacks.
        """
        return self._running.acquire(timeout=MOST_PATIENCE)

    def go_on(self) -> None:
        """Run callbacks again, after ``hold_up`` has returned True."""
        self._running.release()

    # The thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        self.ident = threading.get_ident()
        try:
            while self._run_next():
                pass
        finally:
            self._ended.open()
            self.ident = 0

    def _run_next(self) -> bool:
        """Run the callbacks of one ``put``.

        A separate method, so that references to them end when it returns.
        """
        callbacks = self._queue.get()
        if callbacks is None:
            return False
        if isinstance(callbacks, Latch):
            callbacks.open()
            return True
        with self._running:
            for callback in callbacks:
                if not self._abandoned:
                    _run_safely(callback)
                self._ran += 1
        if self.crowded and self.waiting <= self._most_waiting // 2:
            self._let_in()
        return True

    def _let_in(self) -> None:
        with self._lock:
            self.crowded = False
            self._room.open()  # the next waiting thread makes another latch


def _run_safely(callback: Callback) -> None:
    """Run one callback. Callbacks log their own errors, so an exception here comes from logging."""
    try:
        callback()
    except BaseException:
        here = threading.current_thread()
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), here)))
