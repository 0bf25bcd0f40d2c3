"""One client's connection to the embedded broker, and the memory of its requests."""

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
    """The only answer left is to close the connection."""


class RequestMemory:
    """Counts bytes (Kafka: MemoryPool, ``queued.max.request.bytes``). Thread-safe.

    Requests of up to ``free_of_charge`` bytes are not counted, so that clients with large requests
    cannot keep out those with small ones.
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
        """Take some, unless too little is left. A first taker gets what it wants."""
        with self._lock:
            if self._used and self._used + size > self._capacity:
                return False
            self._used += size
            return True

    def give_back(self, size: int) -> None:
        """The other end of ``take``."""
        with self._lock:
            self._used -= size


_SIZE: Final = struct.Struct(">i")
_SMALLEST_REQUEST: Final = 8
_FIRST_STEP: Final = 64 * 1024
_SECOND_STEP: Final = 1024 * 1024


class RequestBuffer:
    """Takes the size and then as many bytes (Kafka: NetworkReceive). Not thread-safe.

    Memory grows with what has arrived and not with what was announced: a client that announces
    100 MB costs what it sends. ``room`` is None while no memory is left. ``max_bytes`` counts
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


PAUSE: Final = -1
"""Wait for memory, not for the socket."""
_ARRIVAL: Final = 60.0
"""Seconds from the first byte of a request to the last: twice Kafka's ``request.timeout.ms``."""
_PATIENCE: Final = 30.0
_SLOWEST: Final = 64 * 1024
_READS_AT_ONCE: Final = 16
_FAILED: Final = HangUp("there was no memory for the answer")
_LOGIN_BYTES: Final = 512 * 1024  # Kafka: sasl.server.max.receive.size


class Connection:
    """Reads a request, waits for its answer, sends it, reads the next (Kafka: KafkaChannel).

    While a request is in progress nothing is read: the channel is muted, so requests are handled
    in order and one at a time. A connection belongs to one thread at any moment: to the network
    thread while it waits for the socket, to a handler while a request is in progress. Only
    ``cut`` and ``stalled`` may be called by others.
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
        """A whole request, or what to wait for: ``READ``, ``WRITE`` or ``PAUSE``.

        ``now`` is the monotonic clock's: a request has a time from its first byte on.

        Raises ``HangUp`` for what cannot be a request, ``OSError`` when the peer is gone.
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
        """Wait a moment for the client to send more; returns whether it did."""
        ready = select.poll()
        ready.register(self.stream.fileno(), select.POLLIN)
        return bool(ready.poll(milliseconds))

    def mute(self) -> None:
        """A request is in progress."""
        self.muted = True

    def answer(self, parts: Sequence[Part], close: str | None = None) -> None:
        """Queue the answer of the request in progress; none for ``acks=0``.

        ``close`` is the reason to close, once what is queued was sent, instead of reading on.
        """
        self._outgoing.extend(part for part in parts if len(part))
        self._request.release()
        if close is not None:
            self._end = HangUp(close)

    def give_up(self) -> None:
        """The same where memory suffices for no reason."""
        self._end = _FAILED

    def write(self) -> int:
        """Send what is queued: 0 once all is sent, else what to wait for.

        Raises ``OSError`` when the peer is gone, ``HangUp`` when that was the last answer.
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
        """The connection is the network thread's again."""
        self.muted = False
        self._request.max_bytes = self._longest()

    def _longest(self) -> int:
        """Of a request, in bytes: strangers have little to say."""
        known = self.session.authenticated
        return self._max_bytes if known else min(self._max_bytes, _LOGIN_BYTES)

    def begin(self, now: float) -> None:
        """The next request may come: the clock of the client starts again."""
        self._since, self._sent = now, 0

    def stalled(self, now: float, max_idle: float) -> bool:
        """Whether the client has been silent, or slow with a request or an answer, for too long.

        A request arrives within 60 s of its first byte, so that one which was begun and left keeps
        its memory no longer. An answer is taken within 30 s, and 64 KiB a second after that; a
        handshake takes 30 s.
        """
        if self.muted:
            return False
        if self._outgoing or not self._ready:
            return now - self._since > _PATIENCE + self._sent / _SLOWEST
        return now - self._since > (_ARRIVAL if self.receiving else max_idle)

    def cut(self) -> None:
        """Make the thread that owns the connection close it soon. Idempotent, any thread."""
        self._is_cut = True
        self.stream.cut()

    def close(self) -> None:
        """For the thread that has the connection. Idempotent."""
        self._request.release()
        self._outgoing.clear()
        self.stream.close()
