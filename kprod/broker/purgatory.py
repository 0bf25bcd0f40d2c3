"""Where requests wait for something to happen to a partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable
from typing import Final

from kprod.broker.timer import Appointment, Timer

Attempt = Callable[[bool], bool]
"""Tries to complete an operation; the argument says that this is the last time. Returns whether
it is complete, which it has to be the last time. It is called again after a ``MemoryError``."""

_PAUSE: Final = 0.02


class DelayedOperation:
    """One request that waits. The purgatory's lock guards what changes."""

    def __init__(self, keys: Collection[Hashable], attempt: Attempt) -> None:
        self.keys = keys
        self.attempt = attempt
        self.expiry: Appointment | None = None
        self.expired = False
        self.running = False
        self.woken = False
        self.done = False


class Purgatory:
    """Completes operations when their time is over or something happened to one of their keys.

    Kafka: DelayedOperationPurgatory. An operation is attempted by one thread at a time, the
    handlers', and completed exactly once. Thread-safe.
    """

    def __init__(self, timer: Timer, submit: Callable[[Callable[[], None]], None]) -> None:
        self._timer = timer
        self._submit = submit
        self._lock = threading.Lock()  # guards the two below
        self._waiting: dict[Hashable, set[DelayedOperation]] = {}
        self._closed = False

    def watch(self, keys: Collection[Hashable], seconds: float, attempt: Attempt) -> None:
        """Try to complete an operation whenever a key is woken, and for the last time later.

        It is tried at once, too: what happened before the keys were watched is then not missed.
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
        """Something happened to ``key``."""
        # Read without the lock. Somebody who begins to watch after this has yet to look at the
        # partition, and will see there what happened before it.
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
        """Whether nobody attempts the operation; whoever does looks once more otherwise."""
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
                operation.running = False  # for the next who wakes it, or its end
                raise

    def _run(self, operation: DelayedOperation) -> None:
        while True:
            with self._lock:
                operation.woken = False
                last = operation.expired
            complete = False
            try:
                complete = operation.attempt(last)
            except MemoryError:
                # Somebody waits for the answer: it comes when there is memory for it.
                time.sleep(_PAUSE)
                operation.woken, last = True, False
            except BaseException:
                complete = True
                raise
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
        """Complete everything, now and from now on."""
        with self._lock:
            self._closed = True
            waiting = {op for operations in self._waiting.values() for op in operations}
            for operation in waiting:
                operation.expired = True
            ready = [op for op in waiting if self._may_start(op)]
        self._start(ready)
