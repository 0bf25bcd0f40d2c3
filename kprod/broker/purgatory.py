"""Where requests wait for something to happen to a partition."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable


class Purgatory:
    """Wakes those who wait for a key (Kafka's DelayedOperationPurgatory, with threads for timers).

    Thread-safe. A waiter registers its event first and looks at the partitions after that, so that
    an append in between is not missed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._waiting: dict[Hashable, set[threading.Event]] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nobody should wait any more."""
        return self._closed

    def watch(self, keys: Iterable[Hashable], event: threading.Event) -> None:
        """Have ``event`` set by every ``wake`` of one of the keys, and by ``close``."""
        with self._lock:
            for key in keys:
                self._waiting.setdefault(key, set()).add(event)
            if self._closed:
                event.set()

    def forget(self, keys: Iterable[Hashable], event: threading.Event) -> None:
        """The other end of ``watch``."""
        with self._lock:
            for key in keys:
                events = self._waiting.get(key, set())
                events.discard(event)
                if not events:
                    self._waiting.pop(key, None)

    def wake(self, key: Hashable) -> None:
        """Something happened to ``key``."""
        # Read without the lock. Somebody who begins to watch after this has yet to look at the
        # partition, and will see there what happened before it.
        if not self._waiting:
            return
        with self._lock:
            for event in self._waiting.get(key, ()):
                event.set()

    def close(self) -> None:
        """Wake everybody, for good."""
        with self._lock:
            self._closed = True
            for events in self._waiting.values():
                for event in events:
                    event.set()
