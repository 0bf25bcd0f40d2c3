"""One thread for everything that happens at a certain time."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kprod.broker.quiet_log import QuietLog
from kprod.clock import Clock

_PAUSE: Final = 0.02
_log = logging.getLogger(__name__)


@dataclass(order=True, slots=True)
class Appointment:
    """Something to be done at a time of the monotonic clock; ``cancel`` calls it off."""

    when: float
    number: int
    act: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        """Idempotent; too late when it has begun."""
        self.act = None


class Timer:
    """Calls functions at their time (Kafka: SystemTimer). Thread-safe.

    The functions have to be quick, as there is one thread: they hand real work to the handlers.
    One that fails for want of memory is called again.
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
        """Have ``act`` called at ``when``, seconds of the monotonic clock. Never once closed."""
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
        """Have ``act`` called in some time."""
        return self.at(self._clock.monotonic() + seconds, act)

    def _run(self) -> None:
        appointment: Appointment | None = None
        while not self._closed:
            try:
                appointment = appointment or self._next()
                if appointment is not None and appointment.act is not None:
                    appointment.act()
                appointment = None
            except MemoryError:
                time.sleep(_PAUSE)  # and the same again
            except Exception:
                appointment = None
                self._complaints.exception("a timer met an unexpected error")

    def _next(self) -> Appointment | None:
        with self._lock:
            while not self._closed:
                while self._due and self._due[0].act is None:
                    heapq.heappop(self._due)
                left = self._due[0].when - self._clock.monotonic() if self._due else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._due)
                self._changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
            return None

    def close(self) -> None:
        """Forget everything and end the thread. Idempotent; not from an ``act``."""
        with self._lock:
            self._closed = True
            self._due.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()
