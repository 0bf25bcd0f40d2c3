"""A thread that allocates memory from a pool."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kprod_ext import BufferPool, PooledBuffer

PATIENCE = 30.0  # seconds; only a broken pool takes that long


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.001)


class PoolWaiter:
    """Calls ``pool.allocate`` in its own thread, and returns when that is waiting or done."""

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
        self._thread.join(PATIENCE)
        assert isinstance(self.outcome, PooledBuffer), self.outcome
        return self.outcome

    def error(self) -> BaseException:
        self._thread.join(PATIENCE)
        assert isinstance(self.outcome, BaseException), self.outcome
        return self.outcome
