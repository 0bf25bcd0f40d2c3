"""TLS for the clients of one listener."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from kprod.broker.file_slice import FileSlice
from kprod.broker.stream import READ, WRITE, Part

_PIECE: Final = 64 * 1024


class TlsStream:
    """A ``Stream`` over Python's ``ssl``. See there for threads."""

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        self._ready = False

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._socket.fileno()

    def advance(self) -> int:
        """See ``Stream``."""
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
        """See ``Stream``."""
        try:
            return self._socket.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def send(self, parts: Sequence[Part]) -> int:
        """Slices of files have to come to memory: they are encrypted."""
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
        """See ``Stream``."""
        return self._ready and self._socket.pending() > 0

    def cut(self) -> None:
        """See ``Stream``. The socket's own: that of ``ssl`` changes what its owner uses."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """See ``Stream``. Says so to the client (close_notify) where that goes at once."""
        if self._ready:
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()
        self._socket.close()
