"""Log lines that clients can cause at will: a few are written, the rest is counted."""

from __future__ import annotations

import logging
import threading
from typing import Final

from kprod.clock import Clock

_MOST: Final = 10
_SECONDS: Final = 10.0


class QuietLog:
    """At most ``most`` lines in ``seconds``; the next one says how many were left out.

    Nothing is raised, also when there is no memory for a line: this is called where somebody
    already deals with an error. Thread-safe.
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
        """Something a client did."""
        self._write(logging.WARNING, message, args, failed=False)

    def exception(self, message: str, *args: object) -> None:
        """Something that should not have happened, with the traceback of what is being handled."""
        self._write(logging.ERROR, message, args, failed=True)

    def _write(self, level: int, message: str, args: tuple[object, ...], *, failed: bool) -> None:
        try:
            left_out = self._take_turn(self._clock.monotonic())
            if left_out > 0:
                message += f" (and {left_out} lines like this one were left out)"
            if left_out >= 0:
                self._log.log(level, message, *args, exc_info=failed)
        except Exception:
            pass  # there is no other place to say it

    def _take_turn(self, now: float) -> int:
        """How many lines were left out before this one; -1 when this one is, too."""
        with self._lock:
            if now - self._since >= self._seconds:
                self._since, self._said = now, 0
            if self._said >= self._most:
                self._left_out += 1
                return -1
            self._said += 1
            left_out, self._left_out = self._left_out, 0
            return left_out
