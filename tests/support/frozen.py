"""Processes that do nothing for a while, as if their machine hung."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_STATE = 0  # of the fields behind the name, which is in brackets and may hold anything


def freeze(pid: int) -> None:
    """Stop a process; returns once it does nothing any more. ``thaw`` lets it go on."""
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_STATE] != "T":
        time.sleep(0.001)


def thaw(pid: int) -> None:
    """Let a process go on where it was."""
    os.kill(pid, signal.SIGCONT)
