"""Requests that wait for something to happen, and the timer that ends the wait."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field

from kprod.broker.handler_pool import QuietLog
from kprod.clock import Clock

_log = logging.getLogger(__name__)


@dataclass(order=True, slots=True)
class Appointment:
    """A function call that is due at a time of the monotonic clock."""

    when: float
    number: int
    act: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        """Prevent the call, unless it has begun. Idempotent."""
        self.act = None


class Timer:
    """Calls functions when they are due (Kafka: SystemTimer). Thread-safe.

    All functions are called by one thread, so they must be quick, and submit long work to the
    handlers.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._complaints = QuietLog(_log, clock)
        self._lock = threading.Lock()  # guards the rest
        self._changed = threading.Condition(self._lock)
        self._due: list[Appointment] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def at(self, when: float, act: Callable[[], None]) -> Appointment:
        """Call ``act`` at ``when``, in seconds of the monotonic clock.

        After ``close``, nothing is called.
        """
        appointment = Appointment(when, next(self._numbers), act)
        with self._lock:
            heapq.heappush(self._due, appointment)
            if self._due[0] is appointment:
                self._changed.notify()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="kprod-broker-timer", daemon=True
                )
                self._thread.start()
        return appointment

    def after(self, seconds: float, act: Callable[[], None]) -> Appointment:
        """Call ``act`` after this many seconds."""
        return self.at(self._clock.monotonic() + seconds, act)

    def _run(self) -> None:
        while (act := self._next()) is not None:
            try:
                act()
            except Exception:
                self._complaints.exception("a timer met an unexpected error")
            del act  # not kept until the next one is due: it may hold a request

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next call that is due; None if the timer is closed."""
        with self._lock:
            while not self._closed:
                while self._due and self._due[0].act is None:
                    heapq.heappop(self._due)
                left = self._due[0].when - self._clock.monotonic() if self._due else None
                if left is not None and left <= 0:
                    act = heapq.heappop(self._due).act
                    if act is not None:  # else it was cancelled meanwhile
                        return act
                    continue
                self._changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
            return None

    def close(self) -> None:
        """Drop all calls and end the thread. Idempotent.

        Must not be called by a function that the timer calls, because it waits for the thread.
        """
        with self._lock:
            self._closed = True
            self._due.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()


Attempt = Callable[[bool], bool]
"""Tries to complete an operation; returns whether it is complete. The argument says that this is
the last attempt, which must complete it."""


@dataclass(slots=True, eq=False)
class DelayedOperation:
    """One waiting request. The purgatory's lock guards the fields that can change."""

    keys: Collection[Hashable]
    attempt: Attempt
    expiry: Appointment | None = None
    expired: bool = False
    running: bool = False
    woken: bool = False
    done: bool = False


class Purgatory:
    """Completes operations when they time out, or when something happens to one of their keys.

    A key is, for example, a partition for which a request waits. Only one thread at a time attempts
    an operation, and each operation is completed exactly once. Thread-safe. Kafka:
    DelayedOperationPurgatory.
    """

    def __init__(self, timer: Timer, submit: Callable[[Callable[[], None]], None]) -> None:
        self._timer = timer
        self._submit = submit
        self._lock = threading.Lock()  # guards the two below
        self._waiting: dict[Hashable, set[DelayedOperation]] = {}
        self._closed = False

    def watch(self, keys: Collection[Hashable], seconds: float, attempt: Attempt) -> None:
        """Attempt an operation when one of its keys is woken, and a last time after ``seconds``.

        The first attempt is made immediately, because a key may have been woken before this call.
        """
        operation = DelayedOperation(keys, attempt)
        with self._lock:
            for key in keys:
                self._waiting.setdefault(key, set()).add(operation)
            operation.expired = self._closed or seconds <= 0
            operation.running = True
        try:
            if not operation.expired:
                operation.expiry = self._timer.after(seconds, lambda: self._expire(operation))
        except BaseException:
            self._finish(operation)
            raise
        self._run(operation)

    def wake(self, key: Hashable) -> None:
        """Attempt the operations that wait for ``key``, because something has happened to it."""
        # Read without the lock. An operation that is watched after this has yet to be attempted,
        # and its attempt sees what happened to the key before.
        if not self._waiting:
            return
        with self._lock:
            ready = [op for op in self._waiting.get(key, ()) if self._may_start(op)]
        self._start(ready)

    def _expire(self, operation: DelayedOperation) -> None:
        with self._lock:
            operation.expired = True
            ready = self._may_start(operation)
        self._start([operation] if ready else [])

    def _may_start(self, operation: DelayedOperation) -> bool:
        """Whether the caller may start an attempt. If one is running, its thread will repeat it."""
        operation.woken = True
        if operation.running or operation.done:
            return False
        operation.running = True
        return True

    def _start(self, operations: Collection[DelayedOperation]) -> None:
        for operation in operations:
            try:
                self._submit(lambda operation=operation: self._run(operation))  # type: ignore[misc]
            except BaseException:
                operation.running = False  # for the next wake-up, or its end
                raise

    def _run(self, operation: DelayedOperation) -> None:
        while True:
            with self._lock:
                operation.woken = False
                last = operation.expired
            complete = True  # also if the attempt raises
            try:
                complete = operation.attempt(last)
            finally:
                if complete or last:
                    self._finish(operation)
            if operation.done or not self._again(operation):
                return

    def _again(self, operation: DelayedOperation) -> bool:
        with self._lock:
            operation.running = operation.woken
            return operation.running

    def _finish(self, operation: DelayedOperation) -> None:
        with self._lock:
            operation.done = True
            for key in operation.keys:
                operations = self._waiting.get(key, set())
                operations.discard(operation)
                if not operations:
                    self._waiting.pop(key, None)
        if operation.expiry is not None:
            operation.expiry.cancel()

    def close(self) -> None:
        """Make a last attempt for all operations now, and for later ones as soon as they arrive."""
        with self._lock:
            self._closed = True
            waiting = {op for operations in self._waiting.values() for op in operations}
            for operation in waiting:
                operation.expired = True
            ready = [op for op in waiting if self._may_start(op)]
        self._start(ready)
