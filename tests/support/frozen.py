"""Freezes processes, as if their machine hung."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_STATE = 0  # index among the fields after the name


def freeze(pid: int) -> None:
    """Stop a process until ``thaw``, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_STATE] != "T":
        time.sleep(0.001)


def thaw(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
