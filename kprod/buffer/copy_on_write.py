"""A map that is read without a lock and copied to be changed (Kafka's ``CopyOnWriteMap``)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CopyOnWriteMap(Generic[K, V]):
    """Entries are added, never changed or removed. Thread-safe.

    A reader takes the current dict in one attribute read; a writer builds a larger one under
    ``_writing`` and publishes it. A reader therefore sees every entry that was published before
    it looked, and never a dict that changes under it.
    """

    def __init__(self) -> None:
        self._writing = threading.Lock()  # guards replacing _entries
        self._entries: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The entry, or None."""
        return self._entries.get(key)

    def get_or_create(self, key: K, make: Callable[[], V]) -> V:
        """The entry, made by ``make`` if there is none.

        ``make`` runs under the lock, at most once per key.
        """
        found = self._entries.get(key)
        if found is None:
            with self._writing:
                found = self._entries.get(key)
                if found is None:
                    found = make()
                    self._entries = {**self._entries, key: found}
        return found

    def values(self) -> list[V]:
        """The entries published so far."""
        return list(self._entries.values())

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
