"""Fails the last test of a file that leaves a producer behind.

Such a producer looks for its broker as long as the process lives. The broker's port may be another
test's by then, and what the producer logs is read by tests that expect no warning.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

SENDER_THREADS = "kprod-sender-"
SECONDS = 120
"""What a sender that was told to end may take on a machine that is busy."""


@pytest.fixture(scope="module", autouse=True)
def no_producer_is_left() -> Iterator[None]:
    """Look for the threads of senders that the tests of a file have started."""
    before = _senders()
    yield
    deadline = time.monotonic() + SECONDS
    while left := _senders() - before:
        gc.collect()  # a producer that was dropped is closed when it is collected
        if time.monotonic() > deadline:
            pytest.fail(f"producers are left behind: {sorted(each.name for each in left)}")
        time.sleep(0.01)


def _senders() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith(SENDER_THREADS)}
