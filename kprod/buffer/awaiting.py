"""How tasks of an asyncio event loop wait for a batch: one call into the loop for all of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from kprod.errors import IllegalStateError

if TYPE_CHECKING:
    import asyncio


class WaitingTasks:
    """The tasks of one loop that wait for one thing. Every method but ``ring`` in the loop."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order of asking

    def wait(self) -> Generator[Any, None, None]:
        """Wait until ``ring``. Each task has a waiter of its own: cancelling it harms no other."""
        waiter = self._loop.create_future()
        self._waiting[waiter] = None
        try:
            yield from waiter.__await__()
        finally:
            del self._waiting[waiter]

    def ring(self) -> None:
        """It has happened. Any thread; never waits, never raises."""
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return  # the loop was closed, and its tasks with it

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


def running_loop() -> asyncio.AbstractEventLoop:
    """The asyncio loop that runs in this thread. Raises IllegalStateError when none does."""
    import asyncio  # who awaits has it loaded; `import kprod` need not

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise IllegalStateError(
            "await needs a running asyncio event loop; elsewhere, wait with get()"
        ) from None
