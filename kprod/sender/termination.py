"""SIGTERM as an exit like any other: with what is queued delivered first"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from types import FrameType

log = logging.getLogger(__name__)

STATUS = 128 + signal.SIGTERM
"""What a shell says of a process that SIGTERM has ended."""


_ends = False


def process_ends() -> None:
    """The process ends already, and delivers what is queued: SIGTERM must not break that off."""
    global _ends  # noqa: PLW0603  (one process, one end)
    _ends = True


def exit_on_sigterm() -> None:
    """Turn SIGTERM into SystemExit in the main thread, unless the application handles it itself.

    Without a handler the signal ends the process at once, and nothing of Python's runs any more.
    The handler only raises: it may interrupt whatever holds a lock.
    """
    if threading.current_thread() is not threading.main_thread():
        log.warning("close_on_sigterm has no effect: the producer is not made in the main thread")
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(_signal: int, frame: FrameType | None) -> None:
    if not _ends and not _is_finalizing(frame):
        sys.exit(STATUS)


def _is_finalizing(frame: FrameType | None) -> bool:
    """Whether multiprocessing is about to run its finalizers in this process, ours among them.

    A pool that is terminated asks a worker to end and sends it SIGTERM at the same time. SystemExit
    in there would skip the finalizers, and with them what is queued.
    """
    while frame is not None:
        where = (frame.f_globals.get("__name__"), frame.f_code.co_name)
        if where == ("multiprocessing.util", "_exit_function"):
            return True
        frame = frame.f_back
    return False
