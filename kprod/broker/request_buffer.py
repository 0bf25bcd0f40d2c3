"""The bytes of one request while they arrive."""

from __future__ import annotations

import struct
from typing import Final

from kprod.broker.call import HangUp
from kprod.broker.request_memory import RequestMemory

_SIZE: Final = struct.Struct(">i")
_SMALLEST_REQUEST: Final = 8
_FIRST_STEP: Final = 64 * 1024
_SECOND_STEP: Final = 1024 * 1024


class RequestBuffer:
    """Takes the size and then as many bytes (Kafka: NetworkReceive). Not thread-safe.

    Memory grows with what has arrived and not with what was announced: a client that announces
    100 MB costs what it sends. ``room`` is None while there is no memory left. ``max_bytes`` counts
    for the next request.
    """

    def __init__(self, max_bytes: int, memory: RequestMemory) -> None:
        self.max_bytes = max_bytes
        self._memory = memory
        self._prefix = bytearray(_SIZE.size)
        self._data: bytearray | None = None
        self._size = 0
        self.filled = 0
        self._taken = 0

    @property
    def started(self) -> bool:
        """Whether a request has begun to arrive."""
        return self.filled > 0 or self._data is not None

    def room(self) -> memoryview | None:
        """Where the next bytes go; never more than this request has left."""
        if self._data is None:
            return memoryview(self._prefix)[self.filled :]
        if self.filled == len(self._data) and not self._grow(self._data):
            return None
        return memoryview(self._data)[self.filled :]

    def _grow(self, data: bytearray) -> bool:
        # Four bytes announce anything: what comes after them is worth more.
        step = _SECOND_STEP if data else _FIRST_STEP
        capacity = min(self._size, max(step, 2 * len(data)))
        if capacity > self._memory.free_of_charge:
            if not self._memory.take(capacity - self._taken):
                return False
            self._taken = capacity
        if data:
            data.extend(bytes(capacity - len(data)))
        else:
            self._data = bytearray(capacity)
        return True

    def add(self, count: int) -> bytearray | None:
        """``count`` bytes were put into ``room()``; returns the request when it is whole.

        Raises ``HangUp`` for a size that no request has.
        """
        self.filled += count
        if self._data is None:
            if self.filled == _SIZE.size:
                self._begin()
            return None
        if self.filled < self._size:
            return None
        data, self._data, self.filled = self._data, None, 0
        return data

    def _begin(self) -> None:
        (size,) = _SIZE.unpack(self._prefix)
        if not _SMALLEST_REQUEST <= size <= self.max_bytes:
            raise HangUp(f"{size} is not the size of a request; is this TLS or HTTP?")
        self._size, self._data, self.filled = size, bytearray(), 0

    def release(self) -> None:
        """The request that was returned last, or begun, is not needed any more."""
        if self._taken:
            self._memory.give_back(self._taken)
            self._taken = 0
