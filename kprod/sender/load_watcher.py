"""Who wants to know how much waits for each partition."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import Protocol


class LoadWatcher(Protocol):
    """Spreads records by load, and is told of it once per turn, in the sender's thread."""

    @property
    def topics(self) -> Container[str]:
        """The topics to measure; others cost nothing."""
        ...

    def measured(
        self, queued: Mapping[str, Mapping[int, int]], waiting: Collection[int], now: float
    ) -> None:
        """Batches queued by topic and partition, and the nodes that could not take what is ready.

        A partition that is not named has no batches queued.
        """
        ...

    def forget(self, topics: Iterable[str]) -> None:
        """Nothing is sent to these topics any more."""
        ...
