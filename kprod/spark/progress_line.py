"""How far a job is, on one line of a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

LOOK_EVERY = 0.25  # seconds
FIRST_AFTER = 1.0  # a job that is done sooner says nothing
WIDTH = 30

Look = Callable[[], tuple[int, int] | None]
"""Tasks that are done, and all there are; None while that is not known."""


@contextmanager
def progress_line(title: str, look: Look | None, stream: TextIO | None = None) -> Iterator[None]:
    """Draw a bar on ``stream`` (default: standard error) during the block, and then erase it.

    Nothing is drawn without ``look``, or when the stream is no terminal. ``look`` is called by
    another thread.
    """
    out = sys.stderr if stream is None else stream
    if look is None or not out.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(
        target=_draw, args=(title, look, out, done), name="kprod-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _draw(title: str, look: Look, out: TextIO, done: threading.Event) -> None:
    started = time.monotonic()
    drawn = 0
    pause = FIRST_AFTER
    while not done.wait(pause):
        pause = LOOK_EVERY
        seen = look()
        if seen is not None:
            line = bar(title, *seen, time.monotonic() - started)
            out.write("\r" + line.ljust(drawn))
            out.flush()
            drawn = len(line)
    if drawn:
        out.write("\r" + " " * drawn + "\r")
        out.flush()


def bar(title: str, done: int, tasks: int, seconds: float) -> str:
    """The line: ``title [====>     ] 12/40 tasks, 31 s``."""
    full = WIDTH * done // tasks if tasks else 0
    drawn = ("=" * full + ">" * (full < WIDTH)).ljust(WIDTH)
    return f"{title} [{drawn}] {done:,}/{tasks:,} tasks, {seconds:.0f} s"
