"""Two networks with the same knobs: the kernel's, and the one in memory."""

from __future__ import annotations

import select
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from kprod.transport.base import Backend
from kprod.transport.memory import MemoryBackend, ServerEnd
from kprod.transport.tcp import Address, TcpBackend, resolve

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, for no time: close() sends RST
UNKNOWN_HOST = "nowhere.invalid"
TICK = 0.01  # seconds between looks at what a test wants
SMALL = 16_384


class Network(ABC):
    """A backend, and the servers it can reach. ``holds`` is the most that can be under way."""

    backend: Backend
    holds: int | None

    @abstractmethod
    def listen(self, serve: Callable[[], ServerEnd]) -> tuple[str, int]:
        """Where connections are accepted from now on."""

    @abstractmethod
    def nobody(self) -> tuple[str, int]:
        """Where connections are refused."""

    @abstractmethod
    def hang_up(self) -> None:
        """End every connection in order, from the server's side."""

    @abstractmethod
    def cut(self) -> None:
        """Break every connection, from the server's side."""

    def close(self) -> None:
        self.backend.close()


class MemoryNetwork(Network):
    def __init__(self, send_chunk: int | None = None, receive_chunk: int | None = None) -> None:
        self.holds = send_chunk
        self._listeners: dict[tuple[str, int], Callable[[], ServerEnd]] = {}
        self._memory = MemoryBackend(
            self._listeners,
            send_chunk=send_chunk,
            receive_chunk=receive_chunk,
            unresolvable={UNKNOWN_HOST},
        )
        self.backend = self._memory

    def listen(self, serve: Callable[[], ServerEnd]) -> tuple[str, int]:
        address = ("broker", 9000 + len(self._listeners))
        self._listeners[address] = serve
        return address

    def nobody(self) -> tuple[str, int]:
        return "broker", 1

    def hang_up(self) -> None:
        for connection in self._memory.connections:
            connection.hang_up()

    def cut(self) -> None:
        for connection in self._memory.connections:
            connection.cut()


class TcpNetwork(Network):
    holds = 1_000_000  # six buffers of 16 KiB, some more for how the system counts

    def __init__(self) -> None:
        self.backend = TcpBackend(
            send_buffer_bytes=SMALL, receive_buffer_bytes=SMALL, resolver=resolve_locally
        )
        self._servers: list[LocalServer] = []

    def listen(self, serve: Callable[[], ServerEnd]) -> tuple[str, int]:
        server = LocalServer(serve)
        self._servers.append(server)
        return server.address

    def nobody(self) -> tuple[str, int]:
        return unused_address()

    def hang_up(self) -> None:
        for server in self._servers:
            server.hanging_up.set()

    def cut(self) -> None:
        for server in self._servers:
            server.cutting.set()

    def close(self) -> None:
        super().close()
        for server in self._servers:
            server.close()


def resolve_locally(host: str, port: int) -> list[Address]:
    """The system's resolver, kept from asking the internet for a name that does not exist."""
    if host == UNKNOWN_HOST:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return resolve(host, port)


def unused_address() -> tuple[str, int]:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    return host, port


class LocalServer:
    """Accepts connections on a free local port and lets a server end answer each of them."""

    def __init__(self, serve: Callable[[], ServerEnd]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # inherited by every connection
            self._listener.setsockopt(socket.SOL_SOCKET, option, SMALL)
        self.address: tuple[str, int] = self._listener.getsockname()
        self.hanging_up = threading.Event()
        self.cutting = threading.Event()
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            if readable(self._listener):
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._answer, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _answer(self, connection: socket.socket) -> None:
        end = self._serve()
        connection.settimeout(30)
        # The client may go at any time, with bytes of ours unread: that is the end, not an error.
        with connection, suppress(ConnectionError):
            while not self._closing.is_set() and not self.hanging_up.is_set():
                if self.cutting.is_set():
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                    return
                if readable(connection):
                    data = connection.recv(65_536)
                    if not data:
                        return
                    connection.sendall(end.receive(data))


def readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], TICK)[0])
