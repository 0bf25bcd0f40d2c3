"""The listening sockets of the embedded broker, and the thread that accepts connections."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import stat
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kprod.broker.descriptors import closed_in_children
from kprod.broker.handler_pool import HandlerPool, QuietLog
from kprod.broker.network.bell import Bell, new_selector
from kprod.broker.network.connection import Connection, RequestMemory
from kprod.broker.network.listener import Listener, Session
from kprod.broker.network.network_thread import Dispatch, NetworkThread
from kprod.broker.network.stream import READ
from kprod.clock import Clock

_BACKLOG: Final = 1024
_ACCEPT_PAUSE: Final = 0.05
_MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024
_REQUEST_MEMORY: Final = 512 * 1024 * 1024
_MAX_IDLE: Final = 600.0
_log = logging.getLogger(__name__)


class Server:
    """Accepts connections for one node (Kafka: SocketServer with its Acceptor). Thread-safe.

    The constructor opens the listening sockets, so that the ports are known. Connections are
    accepted after ``start``. The threads do not keep the process alive.
    """

    def __init__(self, listeners: Sequence[Listener], clock: Clock) -> None:
        """Open the sockets. Raises ``OSError`` if an address is in use.

        For port 0 the system chooses a port. ``listeners`` then has the chosen ports.
        """
        self._clock = clock
        self._complaints = QuietLog(_log, clock)
        self._memory = RequestMemory(_REQUEST_MEMORY)
        self._sockets: list[socket.socket] = []
        self.listeners: list[Listener] = []
        try:
            for listener in listeners:
                self._listen(listener)
        except BaseException:
            self._close_sockets()
            raise
        self._stopping = threading.Event()
        self._bell = Bell()
        self._acceptor: threading.Thread | None = None
        self._network: NetworkThread | None = None

    def _listen(self, listener: Listener) -> None:
        opened = _open_unix(listener.path) if listener.path is not None else _open_tcp(listener)
        opened.setblocking(False)
        self._sockets.append(closed_in_children(opened))
        port = opened.getsockname()[1] if listener.path is None else listener.port
        self.listeners.append(replace(listener, port=port))

    def start(self, dispatch: Dispatch, pool: HandlerPool) -> None:
        """Begin to accept. ``dispatch`` answers the requests, in threads of ``pool``."""
        self._network = NetworkThread(dispatch, pool, self._clock, max_idle=_MAX_IDLE)
        self._network.start()
        # Here, not in the thread: there may be no descriptor left once that runs.
        self._acceptor = threading.Thread(
            target=self._accept, args=(new_selector(),), name="kprod-broker-acceptor", daemon=True
        )
        self._acceptor.start()

    def _accept(self, ready: selectors.BaseSelector) -> None:
        with ready as selector:
            selector.register(self._bell.fileno(), READ)
            for opened, listener in zip(self._sockets, self.listeners, strict=True):
                selector.register(opened, READ, (opened, listener))
            while not self._stopping.is_set():
                try:
                    for key, _ in selector.select():
                        if not self._stopping.is_set():
                            self._accept_one(*key.data)
                except Exception:  # no memory for another connection
                    self._complaints.exception("could not accept a connection")
                    self._stopping.wait(_ACCEPT_PAUSE)

    def _accept_one(self, opened: socket.socket, listener: Listener) -> None:
        try:
            client, address = opened.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Out of descriptors, for instance: it would fail again at once.
            if not self._stopping.wait(_ACCEPT_PAUSE):
                self._complaints.warning("could not accept a connection: %s", error)
            return
        peer = f"{address[0]}:{address[1]}" if listener.path is None else listener.path
        try:
            stream = listener.open(client)
        except OSError as error:
            _log.debug("lost the connection of %s: %s", peer, error)
            client.close()
            return
        if self._network is not None:
            now = self._clock.monotonic()
            session = Session(listener, peer, authenticated=not listener.authenticates)
            self._network.add(Connection(stream, session, _MAX_REQUEST_BYTES, self._memory, now))

    def hang_up(self) -> None:
        """Stop listening and cut every connection. Idempotent."""
        self._stopping.set()
        self._bell.ring()
        if self._acceptor is not None:
            self._acceptor.join()
        self._close_sockets()
        if self._network is not None:
            self._network.cut()

    def _close_sockets(self) -> None:
        for opened in self._sockets:
            opened.close()

    def close(self, *, handlers_ended: bool = True) -> None:
        """Close everything. Idempotent.

        If handlers are still running (``handlers_ended=False``), they close the connections of
        their requests.
        """
        self.hang_up()
        network, self._network = self._network, None
        if network is not None:
            network.close(handlers_ended=handlers_ended)
        self._bell.close()


def _open_tcp(listener: Listener) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    address = (listener.host, listener.port)
    return socket.create_server(address, family=family, backlog=_BACKLOG)


def _open_unix(path: str) -> socket.socket:
    """Listen on a Unix socket.

    If there is already a socket at ``path``, for example of a broker that crashed, it is removed.
    """
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.bind(path)
        opened.listen(_BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened
