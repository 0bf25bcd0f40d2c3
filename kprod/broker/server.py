"""The listening socket of the embedded broker and the threads of its clients."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

from kprod.broker.connection import Connection

_BACKLOG: Final = 128
_ACCEPT_PAUSE: Final = 0.05
_log = logging.getLogger(__name__)


class Server:
    """Accepts connections in one thread and serves each in one of its own.

    Listening begins with the constructor, so that ``port`` is known; connections are taken from
    ``start`` on. Thread-safe. The threads do not keep the process alive.
    """

    def __init__(self, host: str, port: int) -> None:
        """``port`` 0 lets the system choose. ``OSError`` when the address is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()  # guards the two below
        self._connections: dict[threading.Thread, Connection] = {}
        self._acceptor: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self, connect: Callable[[socket.socket, str], Connection]) -> None:
        """Begin to accept; ``connect`` makes a connection of a socket and the peer's name."""
        self._acceptor = threading.Thread(
            target=self._accept, args=(connect,), name="kprod-broker-acceptor", daemon=True
        )
        self._acceptor.start()

    def _accept(self, connect: Callable[[socket.socket, str], Connection]) -> None:
        while not self._stopping.is_set():
            try:
                client, address = self._listener.accept()
            except OSError as error:
                # Out of descriptors, for instance: it would fail again at once.
                if not self._stopping.wait(_ACCEPT_PAUSE):
                    _log.warning("could not accept a connection: %s", error)
                continue
            peer = f"{address[0]}:{address[1]}"
            self._begin(connect(client, peer), peer)

    def _begin(self, connection: Connection, peer: str) -> None:
        thread = threading.Thread(
            target=self._serve, args=(connection,), name=f"kprod-broker-{peer}", daemon=True
        )
        with self._lock:
            if self._stopping.is_set():
                connection.close()
            self._connections[thread] = connection
            try:
                thread.start()
            except RuntimeError as error:
                _log.warning("no thread for the connection of %s: %s", peer, error)
                del self._connections[thread]
                connection.refuse()

    def _serve(self, connection: Connection) -> None:
        connection.serve()
        with self._lock:
            self._connections.pop(threading.current_thread(), None)

    def stop(self) -> None:
        """Close the listener and every connection, and wait for their threads. Idempotent."""
        with self._lock:
            self._stopping.set()
            serving = dict(self._connections)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for connection in serving.values():
            connection.close()
        if self._acceptor is not None:
            self._acceptor.join()
        self._listener.close()
        with self._lock:
            # One more may have been accepted in the meantime; it was closed at birth.
            serving = dict(self._connections)
        for thread in serving:
            thread.join()
