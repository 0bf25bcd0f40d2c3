"""The in-memory network, with virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kprod.transport.base import Readiness
from kprod.transport.memory import MemoryBackend, ServerEnd
from tests.support.fake_clock import FakeClock

HOUR = 3600.0


class VirtualBackend(MemoryBackend):
    """Advances a fake clock instead of waiting.

    An unlimited wait takes an hour. ``wakes`` counts calls since the last wait. No time passes once
    ``enough()`` is true.
    """

    def __init__(
        self,
        clock: FakeClock,
        listeners: Mapping[tuple[str, int], Callable[[], ServerEnd]],
        **options: Any,
    ) -> None:
        super().__init__(listeners, **options)
        self._clock = clock
        self.wakes = 0
        self.enough: Callable[[], bool] = lambda: False

    def wake(self) -> None:
        self.wakes += 1
        super().wake()

    def poll(self, timeout: float | None) -> list[Readiness]:
        woken = self.wakes > 0
        self.wakes = 0
        ready = super().poll(0)
        if not ready and not woken and not self.enough():
            self._clock.advance(HOUR if timeout is None else timeout)
        return ready
