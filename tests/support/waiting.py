"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def await_true(condition: Callable[[], object], seconds: float = 300.0, why: str = "") -> None:
    """Return once it holds; AssertionError, which says ``why``, if it does not in ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, why or f"not so after {seconds} s: {condition}"
        time.sleep(0.02)
