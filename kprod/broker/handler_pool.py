"""The threads that answer requests, and the queue in front of them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from kprod.clock import Clock, SystemClock

_MOST: Final = 10
_SECONDS: Final = 10.0


class QuietLog:
    """Logs at most ``most`` lines in ``seconds``, and later says how many it left out.

    Callers are already handling an error, so this class never raises, even if memory is exhausted.
    Thread-safe.
    """

    def __init__(
        self, log: logging.Logger, clock: Clock, *, most: int = _MOST, seconds: float = _SECONDS
    ) -> None:
        self._log = log
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()  # guards the rest
        self._since = float("-inf")
        self._said = 0
        self._left_out = 0

    def warning(self, message: str, *args: object) -> None:
        """Log a warning about something that a client did."""
        self._write(logging.WARNING, message, args, failed=False)

    def exception(self, message: str, *args: object) -> None:
        """Log an internal error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, message, args, failed=True)

    def _write(self, level: int, message: str, args: tuple[object, ...], *, failed: bool) -> None:
        try:
            left_out = self._take_turn(self._clock.monotonic())
            if left_out > 0:
                message += f" (and {left_out} lines like this one were left out)"
            if left_out >= 0:
                self._log.log(level, message, *args, exc_info=failed)
        except Exception:
            pass  # the log is the last place to say it

    def _take_turn(self, now: float) -> int:
        """Return how many lines were left out before this one; -1 if this one must be left out."""
        with self._lock:
            if now - self._since >= self._seconds:
                self._since, self._said = now, 0
            if self._said >= self._most:
                self._left_out += 1
                return -1
            self._said += 1
            left_out, self._left_out = self._left_out, 0
            return left_out


Job = Callable[[], None]
_MOST_THREADS: Final = 8
"""Kafka's ``num.io.threads``."""
_MOST_REQUESTS: Final = 500
"""Kafka's ``queued.max.requests``."""
_log = logging.getLogger(__name__)


class HandlerPool:
    """Threads that handle requests, and the queue in front of them. Thread-safe.

    At most ``capacity`` requests are queued (Kafka: RequestChannel). If the queue is full, a
    network thread waits and does not read from its clients, so TCP flow control slows them down.

    Handlers can also queue jobs themselves, such as attempts to complete delayed operations. These
    jobs run before any request. Their number is not limited: handlers that wait for a place in the
    queue could all wait for ever.

    After an unexpected error, a handler logs the error and continues. So a request can break only
    its own connection.
    """

    def __init__(
        self,
        most_threads: int = _MOST_THREADS,
        name: str = "handler",
        capacity: int = _MOST_REQUESTS,
    ) -> None:
        self._name = name
        self._most = most_threads
        self._capacity = capacity
        self._complaints = QuietLog(_log, SystemClock())
        self._starting = threading.Lock()  # guards the one below
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # guards the rest
        self._filled = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        self._requests: deque[Job] = deque()
        self._urgent: deque[Job] = deque()
        self._closed = False

    def __len__(self) -> int:
        """The number of queued jobs."""
        return len(self._requests) + len(self._urgent)

    def start(self) -> None:
        """Start all threads. Does nothing if they are running or the pool is closed.

        If the system refuses some of the threads, the pool works with the others. Raises
        ``RuntimeError`` if the system refuses all.
        """
        with self._starting:
            if self._threads or self._closed:
                return
            for number in range(self._most):
                name = f"kprod-broker-{self._name}-{number}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    _log.warning("no thread for another request handler: %s", error)
                    if not self._threads:
                        raise
                    return
                self._threads.append(thread)

    def put(self, job: Job) -> None:
        """Queue a request, and wait while the queue is full. A closed pool drops requests."""
        with self._lock:
            while len(self._requests) >= self._capacity and not self._closed:
                self._drained.wait()
            if not self._closed:
                self._requests.append(job)
                self._filled.notify()

    def submit(self, job: Job) -> None:
        """Queue a job that runs before any request. Works even while the pool closes."""
        with self._lock:
            self._urgent.append(job)
            self._filled.notify()

    def take(self) -> Job | None:
        """Wait for the next job and return it; None if the pool is closed and nothing is queued."""
        with self._lock:
            while not self._urgent and not self._requests:
                if self._closed:
                    return None
                self._filled.wait()
            if self._urgent:
                return self._urgent.popleft()
            self._drained.notify()
            return self._requests.popleft()

    def _work(self) -> None:
        while (job := self.take()) is not None:
            try:
                job()
            except Exception:
                self._complaints.exception("a request handler met an unexpected error")
            # Not kept until the next one comes: it may hold a request of 100 MB.
            del job

    def close(self) -> None:
        """Run everything that is queued, and end the threads.

        Idempotent. Must not be called by a handler, because it waits for all handlers.
        """
        with self._lock:
            self._closed = True
            self._filled.notify_all()
            self._drained.notify_all()
        with self._starting:
            threads = list(self._threads)
        for thread in threads:
            thread.join()
        # What came in when the last thread was already gone.
        while (job := self.take()) is not None:
            job()
