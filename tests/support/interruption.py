"""An exception out of nowhere, as Ctrl-C is: a signal handler that raises in the main thread."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """What the handler raises: not to be taken for a real Ctrl-C."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block SIGALRM raises Interrupted. Main thread only.

    Garbage is collected before, not during the block: what a handler raises inside a finalizer or
    the callback of a weak reference goes nowhere.
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
    """Call ``act`` again and again; ``seconds`` later it is interrupted, wherever it is."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            act()
    except Interrupted:
        return
