"""An asynchronous exception like Ctrl-C: a signal handler that raises in the main thread."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Raised by the handler; distinct from a real Ctrl-C."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block SIGALRM raises Interrupted. Main thread only.

    Garbage is not collected during the block: an exception raised in a finalizer would be lost.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def repeat_until_interrupted(act: Callable[[], object], seconds: float) -> None:
    """Call ``act`` in a loop, and interrupt it after ``seconds``."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            act()
    except Interrupted:
        return
