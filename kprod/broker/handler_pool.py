"""The threads that answer requests."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from kprod.broker.quiet_log import QuietLog
from kprod.broker.request_channel import Job, RequestChannel
from kprod.clock import SystemClock

_MOST_THREADS: Final = 8
"""Kafka's ``num.io.threads``."""
_PAUSE: Final = 0.02
_log = logging.getLogger(__name__)


class HandlerPool:
    """Runs what is in the request channel (Kafka: KafkaRequestHandlerPool). Thread-safe.

    One that meets an unexpected error logs it and goes on: a request can cost its own connection,
    never the broker.
    """

    def __init__(self, most_threads: int = _MOST_THREADS, name: str = "handler") -> None:
        self.channel = RequestChannel()
        self._name = name
        self._most = most_threads
        self._complaints = QuietLog(_log, SystemClock())
        self._lock = threading.Lock()  # guards the two below
        self._threads: list[threading.Thread] = []
        self._closed = False

    def start(self) -> None:
        """Start the threads, unless they run. Fewer if there cannot be as many, but one.

        All at once and early: ``Thread.start`` waits for ever for a thread that has no memory to
        begin with, so the network thread must not call it. Raises ``RuntimeError`` for none.
        """
        with self._lock:
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
        """Have a request handled; waits while too many are queued."""
        self.channel.put(job)
        if not self._threads:
            self.start()

    def submit(self, job: Job) -> None:
        """Have something done soon that must not wait behind requests."""
        self.channel.put_urgent(job)
        if not self._threads:
            self.start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:
                self._complaints.exception("a request handler met an unexpected error")
            # Not kept until the next one comes: it may hold a request of 100 MB.
            del job

    def _next(self) -> Job | None:
        while True:
            try:
                return self.channel.take()
            except MemoryError:
                time.sleep(_PAUSE)

    def close(self) -> None:
        """Finish what is queued and end the threads. Idempotent; not from a handler."""
        with self._lock:
            self._closed = True
        self.channel.close()
        for thread in self._threads:
            thread.join()
        # What came in when the last thread was already gone.
        while (job := self.channel.take()) is not None:
            job()
