"""The thread that waits for all clients at once."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Final, Protocol, TypeAlias

from kprod.broker.handler_pool import HandlerPool, QuietLog
from kprod.broker.network.connection import PAUSE, Connection, HangUp
from kprod.broker.network.listener import Session
from kprod.broker.network.stream import READ, WRITE, Part
from kprod.clock import Clock


class Reply(Protocol):
    """Takes the answer, once. Any thread."""

    def __call__(self, parts: Sequence[Part], close: str | None = None) -> None:
        """The response with its size; empty for none. ``close``: why the connection ends then."""
        ...


class Exchange:
    """The ``Reply`` of a connection. ``finish`` sends an answer that came after ``leave``."""

    def __init__(self, connection: Connection, finish: Callable[[Connection], None]) -> None:
        self._connection = connection
        self._finish = finish
        self._lock = threading.Lock()  # guards the two below
        self._answered = False
        self._left = False

    def __call__(self, parts: Sequence[Part], close: str | None = None) -> None:
        """See ``Reply``."""
        with self._lock:
            if self._answered:
                raise RuntimeError("a request was answered twice")
            self._answered = True
            late = self._left
            # While the request is in progress the connection belongs to the thread that answers.
            try:
                self._connection.answer(parts, close)
            except Exception:  # no memory for it
                self._connection.give_up()
        if late:
            self._finish(self._connection)

    def leave(self) -> bool:
        """The handler returned: whether the answer is there. If not, it is sent when it comes."""
        with self._lock:
            self._left = True
            return self._answered


_POLL: Final = 1.0
_PAUSE: Final = 0.02
_TURNS: Final = 64
_GLANCE_MS: Final = 2
_log = logging.getLogger(__name__)


Dispatch: TypeAlias = Callable[[bytearray, Session, Reply], None]
"""Answers a request, given without its size, now or later; ``HangUp`` ends the connection."""


class NetworkThread:
    """Reads requests and hands them to the handlers (Kafka: Processor). Thread-safe.

    A connection is armed for one event at a time (EPOLLONESHOT). The thread that gets the event
    has the connection until it arms it again: the network thread reads, a handler answers and
    sends. What a client does not take at once is sent from here.

    An error of ours, or a lack of memory, costs the connection it happens to and no other. The
    thread ends when it is told to, and by nothing else.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        pool: HandlerPool,
        clock: Clock,
        *,
        max_idle: float,
    ) -> None:
        self._dispatch = dispatch
        self._pool = pool
        self._clock = clock
        self._max_idle = max_idle
        self._epoll = select.epoll()
        self._bell_out, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll.register(self._bell_out, select.EPOLLIN)
        self._complaints = QuietLog(_log, clock)
        self._losses = QuietLog(_log, clock)
        # Guards the two below, and which thread owns a connection: an unmuted one that is not
        # paused is either armed, or the network thread has its event.
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        self._stopping = False
        self._swept = clock.monotonic()
        # Connections of this thread that wait for memory, or have more to read at once. A deque
        # may be added to by handlers while this thread takes from it.
        self._paused: deque[Connection] = deque()
        self._thread = threading.Thread(target=self._run, name="kprod-broker-network", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    @property
    def connections(self) -> list[Connection]:
        """The connections at this moment."""
        with self._lock:
            return list(self._connections.values())

    def add(self, connection: Connection) -> None:
        """Serve a connection from now on."""
        fd = connection.stream.fileno()
        with self._lock:
            if not self._stopping:
                self._connections[fd] = connection
                self._epoll.register(fd, READ | select.EPOLLONESHOT)
                return
        connection.close()

    def _run(self) -> None:
        failed = False
        while not self._stopping:
            try:
                if failed:
                    self._rearm()
                    failed = False
                self._turn()
            except Exception:
                failed = True
                self._complaints.exception("the network thread met an unexpected error")
                time.sleep(_PAUSE)  # memory may be there again

    def _turn(self) -> None:
        """Serve every connection that has an event."""
        for fd, _ in self._epoll.poll(_PAUSE if self._paused else _POLL):
            connection = self._connections.get(fd)
            if connection is not None:
                self._serve(connection)
            elif fd == self._bell_out:
                os.read(fd, 4096)
        for _ in range(len(self._paused)):
            self._serve(self._paused.popleft())
        now = self._clock.monotonic()
        if now - self._swept >= _POLL:
            self._swept = now
            self._sweep(now)

    def _rearm(self) -> None:
        """Have the events again that were lost when ``poll`` could not return them, for instance.

        A connection that has nothing to read is found to have nothing to read.
        """
        paused = set(self._paused)
        with self._lock:
            for fd, connection in self._connections.items():
                if not connection.muted and connection not in paused:
                    self._epoll.modify(fd, READ | WRITE | select.EPOLLONESHOT)

    def _serve(self, connection: Connection) -> None:
        """Send the rest of an answer, or read on."""
        try:
            if connection.sending:
                interest = connection.write()
                if interest:
                    self._arm(connection, interest)
                    return
                connection.begin(self._clock.monotonic())
            self._read(connection)
        except Exception as error:
            self._close(connection, error)

    def _read(self, connection: Connection) -> None:
        found = connection.read(self._clock.monotonic())
        if isinstance(found, int):
            if found == PAUSE:
                self._paused.append(connection)
            else:
                self._arm(connection, found)
            return
        connection.mute()
        self._pool.put(lambda: self._handle(connection, found))

    def _arm(self, connection: Connection, interest: int) -> None:
        with self._lock:
            connection.unmute()
            self._epoll.modify(connection.stream.fileno(), interest | select.EPOLLONESHOT)

    def _handle(self, connection: Connection, frame: bytearray) -> None:
        """Answer, in a handler's thread; and the next request as well if it is there already."""
        try:
            self._answer(connection, frame)
        except Exception as error:
            self._close(connection, error)

    def _answer(self, connection: Connection, frame: bytearray | None) -> None:
        for _ in range(_TURNS):
            if frame is None:
                return
            exchange = Exchange(connection, self._finish)
            try:
                self._dispatch(frame, connection.session, exchange)
            except HangUp as reason:
                exchange((), str(reason))
            except Exception:
                # A fault of ours in one request must not end the broker: one client notices.
                self._complaints.exception(
                    "closing the connection of %s after an unexpected error",
                    connection.session.peer,
                )
                exchange((), "the broker met an unexpected error")
            frame = self._next(connection) if exchange.leave() else None
        self._go_on(connection, frame)

    def _go_on(self, connection: Connection, frame: bytearray | None) -> None:
        """Have the next request handled, if it is there already."""
        if frame is not None:
            self._pool.submit(lambda: self._handle(connection, frame))

    def _next(self, connection: Connection) -> bytearray | None:
        """Send the answer; the next request if it has arrived and no other request waits.

        If it is not, the network thread waits for it.
        """
        try:
            interest = connection.write()
            now = self._clock.monotonic()
            connection.begin(now)
            if not interest and len(self._pool) and not connection.stream.pending:
                interest = READ
            if interest:
                self._arm(connection, interest)
                return None
            found = connection.read(now)
            while found == READ and connection.receiving and not len(self._pool):
                # The rest is on its way: waiting for it here saves two changes of threads.
                if not connection.soon_readable(_GLANCE_MS):
                    break
                found = connection.read(self._clock.monotonic())
            if isinstance(found, int):
                self._wait(connection, found)
                return None
        except Exception as reason:
            self._close(connection, reason)
            return None
        return found

    def _wait(self, connection: Connection, interest: int) -> None:
        """Give the connection to the network thread."""
        if interest == PAUSE:
            with self._lock:
                connection.unmute()
                self._paused.append(connection)
            with contextlib.suppress(OSError):  # full of wake-ups already, or closed
                os.write(self._bell, b"!")
        else:
            self._arm(connection, interest)

    def _finish(self, connection: Connection) -> None:
        """Send an answer that came late, from whichever thread it came."""
        try:
            self._go_on(connection, self._next(connection))
        except Exception as error:
            self._close(connection, error)

    def _close(self, connection: Connection, reason: BaseException | None) -> None:
        """For the thread that has the connection. It is repeated until memory
        suffices for it."""
        self._explain(connection, reason)
        while True:
            try:
                self._forget(connection)
                connection.close()
                return
            except MemoryError:
                time.sleep(_PAUSE)

    def _explain(self, connection: Connection, reason: BaseException | None) -> None:
        if isinstance(reason, HangUp):
            self._losses.warning(
                "closing the connection of %s: %s", connection.session.peer, reason
            )
        elif not isinstance(reason, (OSError, ValueError, NoneType)):  # ValueError: closed epoll
            self._complaints.exception(
                "closing the connection of %s after an unexpected error", connection.session.peer
            )

    def _forget(self, connection: Connection) -> None:
        fd = connection.stream.fileno()
        with self._lock:
            if self._connections.get(fd) is connection:
                del self._connections[fd]
                with contextlib.suppress(OSError, ValueError):
                    self._epoll.unregister(fd)

    def _sweep(self, now: float) -> None:
        """Let go of clients that do nothing, or do it too slowly."""
        for connection in self.connections:
            if connection.stalled(now, self._max_idle):
                _log.info("letting go of %s, which is idle or too slow", connection.session.peer)
                connection.cut()

    def cut(self) -> None:
        """End every connection; the thread goes on until ``close``."""
        with self._lock:
            self._stopping = True
        for connection in self.connections:
            connection.cut()
        with contextlib.suppress(OSError):
            os.write(self._bell, b"!")

    def close(self, *, handlers_ended: bool = True) -> None:
        """Wait for the thread and close what is left.

        As long as handlers run, a connection with a request in progress is theirs to close.
        """
        self.cut()
        if self._thread.is_alive():
            self._thread.join()
        for connection in self.connections:
            if handlers_ended or not connection.muted:
                self._close(connection, None)
        self._epoll.close()
        os.close(self._bell)
        os.close(self._bell_out)
