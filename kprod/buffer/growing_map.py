"""A map that only grows, and is read without a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any


class GrowingMap:
    """Entries are added, never changed or removed. Thread-safe.

    One lookup in a dict, or one new key, is atomic, with and without a GIL. So a reader finds every
    entry that was added before it looked, and adding takes the same time however many there are;
    Kafka's ``CopyOnWriteMap`` copies them all, as Java's maps must not be read meanwhile.
    """

    __slots__ = ("_entries", "_writing")

    def __init__(self) -> None:
        self._writing = threading.Lock()  # guards adding to _entries, and walking over them
        self._entries: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """The entry, or None."""
        return self._entries.get(key)

    def get_or_create(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The entry, made by ``make`` if there is none.

        ``make`` runs under the lock, at most once per key.
        """
        found = self._entries.get(key)
        if found is None:
            self._writing.acquire()  # not by ``with``: compiled, it cannot bear lack of memory
            try:
                found = self._entries.get(key)
                if found is None:
                    found = self._entries[key] = make()
            finally:
                self._writing.release()
        return found

    def values(self) -> list[Any]:
        """The entries there are at this moment."""
        with self._writing:
            return list(self._entries.values())

    def __iter__(self) -> Iterator[Any]:
        with self._writing:
            keys = list(self._entries)
        return iter(keys)

    def __len__(self) -> int:
        return len(self._entries)
