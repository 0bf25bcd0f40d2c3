"""The thread that waits for all clients of a node at once."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Final, Protocol, TypeAlias

from kprod.broker.handler_pool import HandlerPool, QuietLog
from kprod.broker.network.bell import Bell, new_selector
from kprod.broker.network.connection import PAUSE, Connection, HangUp
from kprod.broker.network.listener import Session
from kprod.broker.network.stream import READ, Part
from kprod.clock import Clock


class Reply(Protocol):
    """Takes the answer to a request. Must be called exactly once, by any thread."""

    def __call__(self, parts: Sequence[Part], close: str | None = None) -> None:
        """Send the response, if ``parts`` are not empty.

        If ``close`` is given, the connection is closed after that. ``close`` is the reason.
        """
        ...


class Exchange:
    """The ``Reply`` to one request. An answer after ``leave`` is sent by ``finish``."""

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
        """Note that the handler has returned. Returns whether the request was answered before.

        If not, the answer will be sent by ``finish``.
        """
        with self._lock:
            self._left = True
            return self._answered


_POLL: Final = 1.0
_PAUSE: Final = 0.02
_TURNS: Final = 64
_GLANCE_MS: Final = 2
_log = logging.getLogger(__name__)


Dispatch: TypeAlias = Callable[[bytearray, Session, Reply], None]
"""Answers a request (without its size), now or later; ``HangUp`` ends the connection."""


class NetworkThread:
    """Reads requests and hands them to the handlers (Kafka: Processor). Thread-safe.

    A connection that no thread owns is registered with the selector. When the connection has an
    event, the network thread unregisters it, and then owns it. The network thread either registers
    the connection again, or gives it to a handler together with a request. The handler sends the
    answer. If the client does not accept the whole answer at once, the network thread sends the
    rest.

    An internal error or a lack of memory ends only the connection in which it occurs. Only
    ``close`` ends the thread.
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
        self._bell = Bell()
        self._selector = new_selector()
        self._selector.register(self._bell.fileno(), READ)
        # A selector with a descriptor of its own (kqueue, for one) sees at once what another
        # thread registers; that of poll(2) does so only when it is called again.
        self._is_live = hasattr(self._selector, "fileno")
        self._complaints = QuietLog(_log, clock)
        self._losses = QuietLog(_log, clock)
        # Guards the selector and the three below, and which thread owns a connection: an unmuted
        # one that is not paused is either registered, or the network thread has its event.
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        self._stopping = False
        self._closed = False
        self._swept = clock.monotonic()
        # Connections of this thread that wait for memory, or have more to read at once. A deque
        # may be added to by handlers while this thread takes from it.
        self._paused: deque[Connection] = deque()
        self._thread = threading.Thread(target=self._run, name="kprod-broker-network", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def connections(self) -> list[Connection]:
        """The current connections."""
        with self._lock:
            return list(self._connections.values())

    def add(self, connection: Connection) -> None:
        """Serve a new connection from now on."""
        fd = connection.stream.fileno()
        with self._lock:
            if not self._stopping:
                self._connections[fd] = connection
                self._selector.register(fd, READ, connection)
                added = True
            else:
                added = False
        if added:
            self._show_selector()
        else:
            connection.close()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._serve_ready()
            except Exception:
                self._complaints.exception("the network thread met an unexpected error")
                time.sleep(_PAUSE)  # else an error that lasts would keep a core busy

    def _serve_ready(self) -> None:
        """Serve every connection that has an event."""
        for key, _ in self._selector.select(_PAUSE if self._paused else _POLL):
            if key.data is None:
                self._bell.clear()
            else:
                with self._lock:
                    self._selector.unregister(key.fd)
                self._serve(key.data)
        for _ in range(len(self._paused)):
            self._serve(self._paused.popleft())
        now = self._clock.monotonic()
        if now - self._swept >= _POLL:
            self._swept = now
            self._sweep(now)

    def _serve(self, connection: Connection) -> None:
        """Send the rest of an answer, if there is one. Then read a request."""
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
            if self._closed:
                raise ConnectionAbortedError("the broker is closed")
            connection.unmute()
            self._selector.register(connection.stream.fileno(), interest, connection)
        self._show_selector()

    def _show_selector(self) -> None:
        """Wake the network thread if its selector does not notice a new registration by itself."""
        if not self._is_live and threading.get_ident() != self._thread.ident:
            self._bell.ring()

    def _handle(self, connection: Connection, frame: bytearray) -> None:
        """In a handler's thread, answer a request and the next ones that have already arrived."""
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
        """If there is a next request, give it to a handler."""
        if frame is not None:
            self._pool.submit(lambda: self._handle(connection, frame))

    def _next(self, connection: Connection) -> bytearray | None:
        """Send the answer; return the next request of this connection if it has already arrived.

        If it has not, or requests of other connections are queued, the network thread gets the
        connection, and the result is None.
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
            self._bell.ring()
        else:
            self._arm(connection, interest)

    def _finish(self, connection: Connection) -> None:
        """Send an answer that came after ``leave``. Called by the thread that answers."""
        try:
            self._go_on(connection, self._next(connection))
        except Exception as error:
            self._close(connection, error)

    def _close(self, connection: Connection, reason: BaseException | None) -> None:
        """Close a connection that this thread owns."""
        self._explain(connection, reason)
        self._forget(connection)
        connection.close()

    def _explain(self, connection: Connection, reason: BaseException | None) -> None:
        if isinstance(reason, HangUp):
            self._losses.warning(
                "closing the connection of %s: %s", connection.session.peer, reason
            )
        elif not isinstance(reason, (OSError, NoneType)):
            self._complaints.exception(
                "closing the connection of %s after an unexpected error", connection.session.peer
            )

    def _forget(self, connection: Connection) -> None:
        fd = connection.stream.fileno()
        with self._lock:
            if self._connections.get(fd) is connection:
                del self._connections[fd]
                with contextlib.suppress(KeyError):  # the thread that closes it has its event
                    self._selector.unregister(fd)

    def _sweep(self, now: float) -> None:
        """Disconnect clients that are idle or too slow."""
        for connection in self.connections:
            if connection.stalled(now, self._max_idle):
                _log.info("letting go of %s, which is idle or too slow", connection.session.peer)
                connection.cut()

    def cut(self) -> None:
        """End every connection. The thread itself ends only with ``close``."""
        with self._lock:
            self._stopping = True
        for connection in self.connections:
            connection.cut()
        self._bell.ring()

    def close(self, *, handlers_ended: bool = True) -> None:
        """Wait for the thread to end, and close the remaining connections.

        If handlers are still running (``handlers_ended=False``), they close the connections of
        their requests.
        """
        self.cut()
        if self._thread.is_alive():
            self._thread.join()
        for connection in self.connections:
            if handlers_ended or not connection.muted:
                self._close(connection, None)
        with self._lock:
            self._closed = True
            self._selector.close()
        self._bell.close()
