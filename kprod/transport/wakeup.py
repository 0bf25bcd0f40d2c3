"""Ending another thread's wait for file descriptors."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

_ONE = (1).to_bytes(8, sys.byteorder)  # what an eventfd takes; to a pipe just eight bytes
_MOST = 8


def open_eventfd() -> tuple[int, int]:
    """A counter of the kernel, the end to read and the end to write in one (Linux)."""
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    return fd, fd


def open_pipe() -> tuple[int, int]:
    """The end to read and the end to write of a pipe."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


class WakeUp:
    """A file descriptor that is readable from ``set`` until ``clear``. Any thread.

    ``opener`` makes the two ends; the default is the cheapest the platform has.
    """

    def __init__(self, opener: Callable[[], tuple[int, int]] | None = None) -> None:
        if opener is None:
            opener = open_eventfd if hasattr(os, "eventfd") else open_pipe
        self._lock = threading.Lock()  # guards everything below
        self._reading, self._writing = opener()
        self._raised = False
        self._closed = False

    def fileno(self) -> int:
        """What to wait for."""
        return self._reading

    def set(self) -> None:
        """Make it readable. Costs a system call only if it was not; nothing once closed."""
        # Under the lock: otherwise close() may come between the check and the write, and the
        # number of our descriptor may by then belong to someone else's file.
        with self._lock:
            if self._raised or self._closed:
                return
            self._raised = True
            os.write(self._writing, _ONE)

    def clear(self) -> None:
        """Make it unreadable again."""
        with self._lock:
            if self._raised and not self._closed:
                self._raised = False
                os.read(self._reading, _MOST)

    def abandon(self) -> None:
        """Give the descriptors back in a forked child. Nothing has an effect from then on."""
        # A thread of the parent may have been inside the lock when the child was made: it does not
        # exist here and will never leave it.
        self._lock = threading.Lock()
        if not self._closed:
            self._closed = True
            for fd in {self._reading, self._writing}:
                os.close(fd)

    def close(self) -> None:
        """Give the descriptors back. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for fd in {self._reading, self._writing}:
                os.close(fd)
