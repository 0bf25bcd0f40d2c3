"""An in-memory network, for tests and for a broker in the same process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from kprod.clock import monotonic
from kprod.errors import ConnectionLost, IllegalStateError
from kprod.latch import NextLatch
from kprod.lock import Lock
from kprod.transport.base import Backend, Readiness, Transport


class ServerEnd(Protocol):
    """The server's end of one connection."""

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the client, in pieces of any size; return the answer, perhaps b"".

        Called in the client's network thread, without locks. A ConnectionError raised here breaks
        the connection.
        """
        ...


class _Changes:
    """The lock of a backend and its transports, and the latch that opens when they change.

    Not a ``threading.Condition``: Ctrl-C in a caller's ``wake`` could leave that locked for ever.
    """

    __slots__ = ("latch", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.latch = NextLatch()


class MemoryTransport(Transport):
    """The client's end of a connection to ``host:port``, and the actions of its server.

    ``deliver``, ``hang_up`` and ``cut`` are for the server, from any thread.
    """

    counts_every_byte = True

    def __init__(
        self,
        host: str,
        port: int,
        *,
        accept: Callable[[], ServerEnd | None],
        changes: _Changes,
        send_chunk: int | None,
        receive_chunk: int | None,
    ) -> None:
        self.host = host
        self.port = port
        self._accept = accept  # None when no server listens
        self._changes = changes  # its lock guards everything below
        self._send_chunk = send_chunk
        self._receive_chunk = receive_chunk
        self._server: ServerEnd | None = None
        self._watched = self._watched_for_write = True
        self._full = False  # the piece that fits between two polls was sent
        self._inbound = bytearray()
        self._ended = False
        self._failure = ""

    def __repr__(self) -> str:
        return f"MemoryTransport({self.host}:{self.port})"

    # The client's end ---------------------------------------------------------------------------

    def advance(self) -> bool:
        """See ``Transport.advance``. One step connects, or raises if the server refuses."""
        self._check_alive()
        if self._server is None:
            server = self._accept()
            with self._changes.lock:
                if server is None:
                    self._failure = "Connection refused"
                self._server = server
            self._check_alive()
        return True

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """See ``Transport.send``. Bytes sent after the server hung up are accepted and lost."""
        self._check_alive()
        with self._changes.lock:
            if self._server is None or self._full:
                return 0
            data = b"".join(buffers)[: self._send_chunk]
            self._full = self._send_chunk is not None
            listening = not self._ended
        if listening and data:
            self._hand_over(self._server, data)
        return len(data)

    def _hand_over(self, server: ServerEnd, data: bytes) -> None:
        try:
            answer = server.receive(data)
        except ConnectionError as error:
            self.cut(str(error) or type(error).__name__)
        else:
            self.deliver(answer)

    def receive(self, limit: int) -> bytes | None:
        """See ``Transport.receive``."""
        self._check_alive()
        with self._changes.lock:
            size = limit if self._receive_chunk is None else min(limit, self._receive_chunk)
            data = bytes(self._inbound[:size])
            del self._inbound[:size]
            return data if data or self._ended else None

    def close(self) -> None:
        """See ``Transport.close``."""
        with self._changes.lock:
            self._watched = False
            self._inbound.clear()
            self._failure = self._failure or "it is closed"

    def _check_alive(self) -> None:
        if self._failure:
            raise ConnectionLost(f"the connection to {self.host}:{self.port}: {self._failure}")

    # The server's end ---------------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        """Send ``data`` to the client; does nothing once the connection has ended."""
        with self._changes.lock:
            if not self._ended and not self._failure:
                self._inbound += data
                self._changes.latch.open()

    def hang_up(self) -> None:
        """Close the connection: the client reads the delivered bytes, then the end."""
        with self._changes.lock:
            self._ended = True
            self._changes.latch.open()

    def cut(self, cause: str = "Connection reset by peer") -> None:
        """Break the connection: unread bytes are lost, and the client's next call fails."""
        with self._changes.lock:
            self._failure = self._failure or cause
            self._inbound.clear()
            self._changes.latch.open()

    # Being waited for: called by the backend, which holds the lock ------------------------------

    def watch(self, *, write: bool) -> None:
        """Report readability, and writability if ``write``."""
        self._watched, self._watched_for_write = True, write

    def unwatch(self) -> None:
        """Report nothing."""
        self._watched = False

    def make_room(self) -> None:
        """The network has taken the sent bytes, so ``send`` accepts the next piece."""
        self._full = False

    @property
    def connected(self) -> bool:
        """True while both ends may use the connection."""
        return self._server is not None and not self._failure

    def readiness(self) -> Readiness | None:
        """The readiness of the transport; None if it is not watched, or not ready."""
        if not self._watched:
            return None
        readable = bool(self._inbound or self._ended or self._failure)
        writable = self._watched_for_write and not self._full
        return Readiness(self, readable, writable) if readable or writable else None


class MemoryBackend(Backend):
    """Connects to ``listeners``, which map host and port to a factory of the server's end.

    The mapping is read whenever a connection is opened: an address without a listener refuses the
    connection. ``send_chunk`` is the limit of bytes for one ``send``; the next ``send`` accepts
    none until ``poll`` has been called. ``receive_chunk`` is the limit of one ``receive``. Hosts in
    ``unresolvable`` have no address. Nothing depends on time, except ``poll`` when there is nothing
    to report.

    Used by one thread only, except for ``wake`` and ``connections``.
    """

    def __init__(
        self,
        listeners: Mapping[tuple[str, int], Callable[[], ServerEnd]],
        *,
        send_chunk: int | None = None,
        receive_chunk: int | None = None,
        unresolvable: Collection[str] = (),
    ) -> None:
        self._listeners = listeners
        self._send_chunk = send_chunk
        self._receive_chunk = receive_chunk
        self._unresolvable = unresolvable
        self._changes = _Changes()  # its lock guards what follows, and every transport
        self._transports: list[MemoryTransport] = []
        self._woken = False
        self._closed = False

    def dial(self, host: str, port: int) -> MemoryTransport:
        """See ``Backend.dial``."""
        if host in self._unresolvable:
            raise ConnectionLost(f"cannot resolve {host}:{port}")

        def accept() -> ServerEnd | None:
            listener = self._listeners.get((host, port))
            return None if listener is None else listener()

        transport = MemoryTransport(
            host,
            port,
            accept=accept,
            changes=self._changes,
            send_chunk=self._send_chunk,
            receive_chunk=self._receive_chunk,
        )
        with self._changes.lock:
            self._check_open()
            self._transports.append(transport)
        return transport

    def watch(self, transport: Transport, *, write: bool) -> None:
        """See ``Backend.watch``."""
        with self._changes.lock:
            ours = self._ours(transport)
            ours.watch(write=write)
            if ours not in self._transports:
                self._transports.append(ours)

    def poll(self, timeout: float | None) -> list[Readiness]:
        """See ``Backend.poll``. Transports are reported in the order they were dialled."""
        deadline = None if timeout is None else monotonic() + timeout
        with self._changes.lock:
            self._check_open()
            for transport in self._transports:
                transport.make_room()
        while True:
            remaining = None if deadline is None else deadline - monotonic()
            with self._changes.lock:
                ready = self._ready()
                if ready or self._woken or (remaining is not None and remaining <= 0):
                    self._woken = False
                    return ready
                changed = self._changes.latch.following()
            changed.wait(remaining)

    def _ready(self) -> list[Readiness]:
        every = self._transports
        return [known for transport in every if (known := transport.readiness()) is not None]

    def forget(self, transport: Transport) -> None:
        """See ``Backend.forget``."""
        with self._changes.lock:
            ours = self._ours(transport)
            ours.unwatch()
            if ours in self._transports:
                self._transports.remove(ours)

    def wake(self) -> None:
        """See ``Backend.wake``."""
        with self._changes.lock:
            self._woken = True
            self._changes.latch.open()

    def close(self) -> None:
        """See ``Backend.close``."""
        with self._changes.lock:
            self._closed = True
            transports, self._transports = self._transports, []
        for transport in transports:
            transport.close()

    def abandon(self) -> None:
        """See ``Backend.abandon``. Nothing to do: memory is the child's own copy."""

    @property
    def connections(self) -> list[MemoryTransport]:
        """The open connections, in the order they were dialled. Any thread."""
        with self._changes.lock:
            return [transport for transport in self._transports if transport.connected]

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the memory backend is closed")

    @staticmethod
    def _ours(transport: Transport) -> MemoryTransport:
        if not isinstance(transport, MemoryTransport):
            raise TypeError(f"{transport!r} was not made by a MemoryBackend")
        return transport
