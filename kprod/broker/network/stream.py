"""The bytes from and to one client, by TCP or TLS."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from kprod.broker.descriptors import closed_in_children
from kprod.broker.records.file_slice import FileSlice
from kprod.types import BytesLike

READ: Final = selectors.EVENT_READ
"""Wait until the peer has sent something."""
WRITE: Final = selectors.EVENT_WRITE
"""Wait until the peer can accept something."""

Part = BytesLike | FileSlice
"""A piece of a response: bytes in memory, or a slice of a file, which need not be read."""


class PlainStream:
    """A non-blocking stream of bytes without TLS. For one thread at a time; any may call ``cut``.

    Any method may raise ``OSError``, after which the connection is lost.
    """

    def __init__(self, client: socket.socket) -> None:
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: socket.socket = closed_in_children(client)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._socket.fileno()

    def advance(self) -> int:
        """Continue the handshake; return 0 once it is complete, else what to wait for."""
        return 0

    def receive_into(self, buffer: memoryview) -> int | None:
        """Return how many bytes were read; 0 if the peer has closed, None if there are none yet."""
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError:
            return None

    def send(self, parts: Sequence[Part]) -> int:
        """Send some bytes of ``parts``. Return how many were sent; 0 if none can be sent now.

        The kernel sends slices of files (``sendfile``), so they are not read into memory.
        """
        first = parts[0]
        try:
            if isinstance(first, FileSlice):
                sent = os.sendfile(self.fileno(), first.fd, first.position, first.length)
                if not sent:
                    # The file was cut: it lacks what the response has announced.
                    raise OSError("a file ended before the slice of it that is being sent")
                return sent
            return self._socket.sendmsg(_in_memory(parts))
        except BlockingIOError:
            return 0

    @property
    def pending(self) -> bool:
        """Whether ``receive_into`` can return bytes that were read from the socket before."""
        return False

    def cut(self) -> None:
        """Let every wait and every call of the owner end soon. Idempotent. For any thread."""
        # The socket's own shutdown: that of ``ssl`` changes what its owner uses.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. Only for the thread that owns the stream. Idempotent."""
        self._socket.close()


def _in_memory(parts: Sequence[Part]) -> list[BytesLike]:
    found: list[BytesLike] = []
    for part in parts:
        if isinstance(part, FileSlice):
            break
        found.append(part)
    return found


_PIECE: Final = 64 * 1024


class TlsStream(PlainStream):
    """A ``PlainStream`` with TLS, by Python's module ``ssl``."""

    _socket: ssl.SSLSocket

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(client)
        self._socket = closed_in_children(
            context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        )
        self._ready = False

    def advance(self) -> int:
        """Continue the handshake; return 0 once it is complete, else what to wait for."""
        if not self._ready:
            try:
                self._socket.do_handshake()
            except ssl.SSLWantReadError:
                return READ
            except ssl.SSLWantWriteError:
                return WRITE
            self._ready = True
        return 0

    def receive_into(self, buffer: memoryview) -> int | None:
        """See ``PlainStream``."""
        try:
            return self._socket.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def send(self, parts: Sequence[Part]) -> int:
        """See ``PlainStream``. Slices of files are read into memory to encrypt them."""
        first = parts[0]
        if isinstance(first, FileSlice):
            piece = os.pread(first.fd, min(first.length, _PIECE), first.position)
        else:
            piece = bytes(memoryview(first)[:_PIECE])
        try:
            return self._socket.send(piece)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    @property
    def pending(self) -> bool:
        """See ``PlainStream``."""
        return self._ready and self._socket.pending() > 0

    def close(self) -> None:
        """See ``PlainStream``. Also sends close_notify if that does not block."""
        if self._ready:
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()
        super().close()
