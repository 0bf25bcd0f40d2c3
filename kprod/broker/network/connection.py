"""One client's connection to the embedded broker, and the memory that its requests take."""

from __future__ import annotations

import select
import struct
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from kprod.broker.network.listener import Session
from kprod.broker.network.stream import READ, WRITE, Part, PlainStream
from kprod.broker.records.file_slice import FileSlice


class HangUp(Exception):
    """Raised when the connection must be closed without an answer."""


class RequestMemory:
    """Limits the memory of all requests (Kafka: ``queued.max.request.bytes``). Thread-safe.

    Requests of up to ``free_of_charge`` bytes are not counted. So clients with large requests
    cannot keep out those with small ones.
    """

    def __init__(self, capacity: int, free_of_charge: int = 64 * 1024) -> None:
        self._capacity = capacity
        self.free_of_charge = free_of_charge
        self._lock = threading.Lock()  # guards the one below
        self._used = 0

    @property
    def used(self) -> int:
        """The number of bytes in use."""
        return self._used

    def take(self, size: int) -> bool:
        """Count ``size`` bytes; return whether they may be used.

        If none are in use, any size is allowed. So a request that is larger than the capacity can
        arrive.
        """
        with self._lock:
            if self._used and self._used + size > self._capacity:
                return False
            self._used += size
            return True

    def give_back(self, size: int) -> None:
        """Give back bytes that were allowed by ``take``."""
        with self._lock:
            self._used -= size


_SIZE: Final = struct.Struct(">i")
_SMALLEST_REQUEST: Final = 8
_FIRST_STEP: Final = 64 * 1024
_SECOND_STEP: Final = 1024 * 1024


class RequestBuffer:
    """Receives requests: a size, and then that many bytes (Kafka: NetworkReceive). Not thread-safe.

    Memory grows with the received bytes, not with the announced size: a client that announces 100
    MB but sends little uses little. A new ``max_bytes`` applies from the next request on.
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
        """Return the buffer for the next bytes of the request; None while no memory is left."""
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
        """Count bytes that were read into ``room()``; return the request when it is complete.

        Raises ``HangUp`` for an invalid size.
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
        """Release the memory of the last request, when it is no longer needed."""
        if self._taken:
            self._memory.give_back(self._taken)
            self._taken = 0


PAUSE: Final = -1
"""Wait for memory instead of the socket."""
_ARRIVAL: Final = 60.0
"""Limit of seconds between the first and the last byte of a request: twice Kafka's
``request.timeout.ms``."""
_PATIENCE: Final = 30.0
_SLOWEST: Final = 64 * 1024
_READS_AT_ONCE: Final = 16
_FAILED: Final = HangUp("there was no memory for the answer")
_LOGIN_BYTES: Final = 512 * 1024  # Kafka: sasl.server.max.receive.size


class Connection:
    """Reads a request, waits for its answer, sends it, reads the next (Kafka: KafkaChannel).

    While a request is in progress, the connection is muted: nothing is read. So requests are
    handled in order and one at a time. Only one thread owns a connection: a handler while a request
    is in progress, and otherwise the network thread. Other threads may only call ``cut`` and
    ``stalled``.
    """

    def __init__(
        self,
        stream: PlainStream,
        session: Session,
        max_request_bytes: int,
        memory: RequestMemory,
        now: float,
    ) -> None:
        self.stream = stream
        self.session = session
        self._max_bytes = max_request_bytes
        self._request = RequestBuffer(self._longest(), memory)
        self._outgoing: deque[Part] = deque()
        self._ready = False
        self._since = now
        self._sent = 0
        self.muted = False
        self._end: HangUp | None = None
        self._is_cut = False

    def read(self, now: float) -> bytearray | int:
        """Return a complete request, or what to wait for: ``READ``, ``WRITE`` or ``PAUSE``.

        ``now`` is monotonic time. The time limit of a request counts from its first byte.

        Raises ``HangUp`` for bytes that are not a request, ``OSError`` if the connection is lost.
        """
        if self._is_cut:
            raise ConnectionResetError("cut off")
        if not self._ready:
            interest = self.stream.advance()
            if interest:
                return interest
            self._ready = True
        for _ in range(_READS_AT_ONCE):
            room = self._request.room()
            if room is None:
                return PAUSE
            count = self.stream.receive_into(room)
            room.release()
            if count is None:
                return READ
            if count == 0:
                raise ConnectionResetError("the client left")
            if not self.receiving:
                self._since = now
            request = self._request.add(count)
            if request is not None:
                return request
        return PAUSE if self.stream.pending else READ

    @property
    def receiving(self) -> bool:
        """Whether a request has begun to arrive."""
        return self._request.started

    def soon_readable(self, milliseconds: int) -> bool:
        """Wait at most this long for the client to send more; return whether it has."""
        ready = select.poll()
        ready.register(self.stream.fileno(), select.POLLIN)
        return bool(ready.poll(milliseconds))

    def mute(self) -> None:
        """Stop reading, because a request is in progress."""
        self.muted = True

    def answer(self, parts: Sequence[Part], close: str | None = None) -> None:
        """Queue the answer to the current request. For ``acks=0``, the answer is empty.

        If ``close`` is given, the connection is closed after the answer. ``close`` is the reason.
        """
        self._outgoing.extend(part for part in parts if len(part))
        self._request.release()
        if close is not None:
            self._end = HangUp(close)

    def give_up(self) -> None:
        """End the connection after the queued bytes, because there is no memory for the answer."""
        self._end = _FAILED

    def write(self) -> int:
        """Send queued bytes. Return 0 when all are sent, else what to wait for.

        Raises ``OSError`` if the connection is lost, ``HangUp`` if it is to be closed now.
        """
        while self._outgoing:
            sent = self.stream.send(self._outgoing)
            if not sent:
                return WRITE
            self._sent += sent
            self._drop(sent)
        if self._end is not None:
            raise self._end
        return 0

    def _drop(self, sent: int) -> None:
        while sent:
            first = self._outgoing.popleft()
            if sent >= len(first):
                sent -= len(first)
                continue
            rest = first.after(sent) if isinstance(first, FileSlice) else memoryview(first)[sent:]
            self._outgoing.appendleft(rest)
            return

    @property
    def sending(self) -> bool:
        """Whether part of an answer is still to be sent."""
        return bool(self._outgoing)

    def unmute(self) -> None:
        """Allow reading again, because the network thread now owns the connection."""
        self.muted = False
        self._request.max_bytes = self._longest()

    def _longest(self) -> int:
        """Return the limit of a request in bytes. It is lower before the login."""
        known = self.session.authenticated
        return self._max_bytes if known else min(self._max_bytes, _LOGIN_BYTES)

    def begin(self, now: float) -> None:
        """Start the time-outs of the next request."""
        self._since, self._sent = now, 0

    def stalled(self, now: float, max_idle: float) -> bool:
        """Whether the client has been idle for ``max_idle`` seconds, or is too slow.

        From its first byte, a request must arrive within 60 s, so that its memory is not kept for
        longer. The client must accept an answer within 30 s, plus a second for each 64 KiB. A
        handshake must end within 30 s.
        """
        if self.muted:
            return False
        if self._outgoing or not self._ready:
            return now - self._since > _PATIENCE + self._sent / _SLOWEST
        return now - self._since > (_ARRIVAL if self.receiving else max_idle)

    def cut(self) -> None:
        """Let the thread that owns the connection close it soon. Idempotent. For any thread."""
        self._is_cut = True
        self.stream.cut()

    def close(self) -> None:
        """Close the connection. Only for the thread that owns it. Idempotent."""
        self._request.release()
        self._outgoing.clear()
        self.stream.close()
