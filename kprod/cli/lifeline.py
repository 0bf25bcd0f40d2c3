"""A child process that ends with its parent, however the parent ends."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable


def when_parent_ends(act: Callable[[], object]) -> None:
    """Call ``act`` in a thread of its own once standard input is closed.

    The parent holds the other end of the pipe. The system closes it when the parent is gone, even
    when it was killed and could tell nobody.
    """
    threading.Thread(target=_wait, args=(act,), name="kprod-lifeline", daemon=True).start()


def _wait(act: Callable[[], object]) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    act()
