"""One client's connection to the embedded broker."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Sequence
from typing import Final

from kprod.broker.call import HangUp
from kprod.broker.file_slice import FileSlice
from kprod.broker.request_buffer import RequestBuffer
from kprod.broker.request_memory import RequestMemory
from kprod.broker.session import Session
from kprod.broker.stream import READ, WRITE, Part, Stream

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
        stream: Stream,
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

    def answer(self, parts: Sequence[Part], *, close: bool = False) -> None:
        """Queue the answer of the request in progress; none for ``acks=0``."""
        self._outgoing.extend(part for part in parts if len(part))
        self._request.release()
        if close:
            self.hang_up("a fault was asked for")

    def hang_up(self, reason: str) -> None:
        """Close instead of reading on, once what is queued was sent."""
        self._end = HangUp(reason)
        self._request.release()

    def give_up(self) -> None:
        """The same where there is no memory for anything."""
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
        """Make whoever has the connection close it soon. Idempotent, any thread."""
        self._is_cut = True
        self.stream.cut()

    def close(self) -> None:
        """For the thread that has the connection. Idempotent."""
        self._request.release()
        self._outgoing.clear()
        self.stream.close()
