"""A thread that asks a pool for memory, and what became of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kprod_ext import BufferPool, PooledBuffer

PATIENCE = 30.0  # seconds no test needs; only a broken pool makes one wait that long


def wait_until(condition: Callable[[], bool]) -> None:
    """Return as soon as ``condition`` holds; AssertionError if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.001)


class PoolWaiter:
    """Calls ``pool.allocate`` in a thread of its own; one who must wait is queued on return."""

    def __init__(self, pool: BufferPool, size: int, timeout: float = PATIENCE) -> None:
        self.outcome: PooledBuffer | BaseException | None = None
        self._pool = pool
        ahead = pool.waiting
        self._thread = threading.Thread(target=self._allocate, args=(size, timeout), daemon=True)
        self._thread.start()
        wait_until(lambda: pool.waiting > ahead or self.outcome is not None)

    def _allocate(self, size: int, timeout: float) -> None:
        try:
            self.outcome = self._pool.allocate(size, timeout)
        except (TimeoutError, RuntimeError, MemoryError) as error:
            self.outcome = error

    def buffer(self) -> PooledBuffer:
        """The memory it got; waits for it."""
        self._thread.join(PATIENCE)
        assert isinstance(self.outcome, PooledBuffer), self.outcome
        return self.outcome

    def error(self) -> BaseException:
        """The exception it got; waits for it."""
        self._thread.join(PATIENCE)
        assert isinstance(self.outcome, BaseException), self.outcome
        return self.outcome
