"""How much memory all requests of all clients may take together."""

from __future__ import annotations

import threading


class RequestMemory:
    """Counts bytes (Kafka: MemoryPool, ``queued.max.request.bytes``). Thread-safe.

    Requests of up to ``free_of_charge`` bytes are not counted, so that those who send much cannot
    keep out those who send little.
    """

    def __init__(self, capacity: int, free_of_charge: int = 64 * 1024) -> None:
        self._capacity = capacity
        self.free_of_charge = free_of_charge
        self._lock = threading.Lock()  # guards the one below
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes that are taken."""
        return self._used

    def take(self, size: int) -> bool:
        """Take some, unless there is too little left. A first taker gets what it wants."""
        with self._lock:
            if self._used and self._used + size > self._capacity:
                return False
            self._used += size
            return True

    def give_back(self, size: int) -> None:
        """The other end of ``take``."""
        with self._lock:
            self._used -= size
