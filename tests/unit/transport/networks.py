"""Two networks with the same knobs: the kernel's, and the one in memory."""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from functools import cached_property

from kprod.transport.base import Backend
from kprod.transport.memory import MemoryBackend
from kprod.transport.tcp import Address, TcpBackend, resolve

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, for no time: close() sends RST
UNKNOWN_HOST = "nowhere.invalid"
SMALL = 16_384


class Network(ABC):
    """A backend, and a server that a test drives, for one connection.

    ``holds`` is the most that can be under way.
    """

    backend: Backend
    holds: int | None
    address: tuple[str, int]

    @abstractmethod
    def nobody(self) -> tuple[str, int]:
        """Where connections are refused."""

    @abstractmethod
    def received(self, size: int) -> bytes:
        """The next so many bytes that the client has sent."""

    @abstractmethod
    def answer(self, data: bytes) -> None:
        """Let the server send it."""

    @abstractmethod
    def hang_up(self) -> None:
        """End the connection in order, from the server's side."""

    @abstractmethod
    def cut(self) -> None:
        """Break the connection, from the server's side."""

    def close(self) -> None:
        self.backend.close()


class MemoryNetwork(Network):
    def __init__(self, send_chunk: int | None = None, receive_chunk: int | None = None) -> None:
        self.holds = send_chunk
        self.address = ("broker", 9092)
        self._received = b""
        self.backend = self._memory = MemoryBackend(
            {self.address: lambda: self},
            send_chunk=send_chunk,
            receive_chunk=receive_chunk,
            unresolvable={UNKNOWN_HOST},
        )

    def receive(self, data: bytes) -> bytes:
        """As the server's end of a connection."""
        self._received += data
        return b""

    def nobody(self) -> tuple[str, int]:
        return "broker", 1

    def received(self, size: int) -> bytes:
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def answer(self, data: bytes) -> None:
        for connection in self._memory.connections:
            connection.deliver(data)

    def hang_up(self) -> None:
        for connection in self._memory.connections:
            connection.hang_up()

    def cut(self) -> None:
        for connection in self._memory.connections:
            connection.cut()


class TcpNetwork(Network):
    holds = 1_000_000  # four buffers of 16 KiB, some more for how the system counts

    def __init__(self) -> None:
        self.backend = TcpBackend(
            send_buffer_bytes=SMALL, receive_buffer_bytes=SMALL, resolver=resolve_locally
        )
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(30)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # inherited by every connection
            self._listener.setsockopt(socket.SOL_SOCKET, option, SMALL)
        self.address = self._listener.getsockname()

    @cached_property
    def _peer(self) -> socket.socket:
        peer, _ = self._listener.accept()
        peer.settimeout(30)
        return peer

    def nobody(self) -> tuple[str, int]:
        return unused_address()

    def received(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._peer.recv(size - len(found))
        return found

    def answer(self, data: bytes) -> None:
        self._peer.sendall(data)

    def hang_up(self) -> None:
        self._peer.close()

    def cut(self) -> None:
        self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._peer.close()

    def close(self) -> None:
        super().close()
        if "_peer" in vars(self):
            self._peer.close()
        self._listener.close()


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
