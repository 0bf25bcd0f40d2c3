"""A map that is read without a lock, and from which entries are rarely removed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from kprod.lock import Lock


class CopyOnWriteMap:
    """Unlike Kafka's class, it adds entries in place, and copies the map only to shrink it.

    Entries are added and removed, but not changed. Looking up or adding one key is atomic in a
    dict, with and without a GIL, so a reader finds every entry that was added before. If each new
    key copied the map, adding n keys would take O(n**2) time. Thread-safe.
    """

    __slots__ = ("_entries", "_most", "_writing")

    def __init__(self) -> None:
        self._writing = Lock()  # guards changing _entries, and walking over them
        self._entries: dict[Hashable, Any] = {}
        self._most = 0  # the largest number of entries since _entries was made

    def get(self, key: Hashable) -> Any:
        """The entry, or None."""
        return self._entries.get(key)

    def get_or_create(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The entry; if there is none, add the result of ``make``.

        ``make`` runs under the lock, at most once per key.
        """
        found = self._entries.get(key)
        if found is None:
            with self._writing:
                found = self._entries.get(key)
                if found is None:
                    found = self._entries[key] = make()
                    self._most = max(self._most, len(self._entries))
        return found

    def discard(self, key: Hashable, entry: Any) -> None:
        """Remove the entry, unless the key has another entry by now. Readers may still use it."""
        with self._writing:
            if self._entries.get(key) is entry:
                del self._entries[key]
            if len(self._entries) < self._most // 4:
                self._shrink()

    def _shrink(self) -> None:
        """Copy the dict to free the memory of removed entries. The caller holds ``_writing``."""
        # A reader may still have the former dict. It lacks later entries, but get_or_create looks
        # for them in this one.
        self._entries = dict(self._entries)
        self._most = len(self._entries)

    def values(self) -> list[Any]:
        """The entries at this moment."""
        with self._writing:
            return list(self._entries.values())

    def __iter__(self) -> Iterator[Any]:
        with self._writing:
            keys = list(self._entries)
        return iter(keys)

    def __len__(self) -> int:
        return len(self._entries)
