"""Fails the last test of a file that leaves a producer open.

Such a producer reconnects until the process ends, perhaps to another test's port, and its warnings
appear in other tests.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

SENDER_THREADS = "kprod-sender-"
SECONDS = 120
"""Limit for closing a sender on a busy machine."""


@pytest.fixture(scope="module", autouse=True)
def no_producer_is_left() -> Iterator[None]:
    """Check that the sender threads of a file's tests have ended."""
    before = _senders()
    yield
    deadline = time.monotonic() + SECONDS
    while left := _senders() - before:
        gc.collect()  # a dropped producer is closed by the collector
        if time.monotonic() > deadline:
            pytest.fail(f"producers were not closed: {sorted(each.name for each in left)}")
        time.sleep(0.01)


def _senders() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith(SENDER_THREADS)}
