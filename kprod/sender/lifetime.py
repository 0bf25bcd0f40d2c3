"""What producers owe their process: nothing left behind at exit, a fresh start after a fork."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import Protocol


class Living(Protocol):
    """A producer, as far as the process is concerned."""

    def close_at_exit(self, timeout: float) -> None:
        """Deliver what can be delivered within ``timeout`` seconds, and run nothing after that."""
        ...

    def inherited_by_child(self) -> None:
        """This process is a fork: threads and connections belong to the parent."""
        ...


_open: weakref.WeakKeyDictionary[Living, float] = weakref.WeakKeyDictionary()


def watch_over(producer: Living, exit_seconds: float) -> None:
    """Close ``producer`` within ``exit_seconds`` when the interpreter exits; tell it of forks."""
    _open[producer] = exit_seconds


def forget(producer: Living) -> None:
    """``producer`` was closed."""
    _open.pop(producer, None)


def _close_all() -> None:
    started = time.monotonic()  # their times run together: what all have queued is sent meanwhile
    for producer, seconds in list(_open.items()):
        producer.close_at_exit(max(0.0, started + seconds - time.monotonic()))


def _tell_child() -> None:
    for producer in list(_open):
        producer.inherited_by_child()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_tell_child)
