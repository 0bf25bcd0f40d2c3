"""Waits for another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable


def await_true(condition: Callable[[], object], seconds: float = 300.0, why: str = "") -> None:
    """Wait until it holds; AssertionError with ``why`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, why or f"false after {seconds} s: {condition}"
        time.sleep(0.02)
