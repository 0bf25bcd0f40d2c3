"""Sockets of this machine's file system instead of addresses: to a broker or a proxy next door."""

from __future__ import annotations

import re
import socket

from kprod.errors import ConnectionLost
from kprod.transport.tcp import Address, TcpBackend

_IN_FOLDER = re.compile(r"[^/\0]+")


class UnixBackend(TcpBackend):
    """Connects to ``path``, in which ``{host}`` and ``{port}`` stand for the broker's own.

    Sizes of buffers in bytes, None leaves the system's. Threads as ``TcpBackend``.
    """

    def __init__(
        self,
        path: str,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        super().__init__(send_buffer_bytes, receive_buffer_bytes)
        self._options = [each for each in self._options if each[0] != socket.IPPROTO_TCP]
        self._path = path

    def _known(self, host: str, port: int) -> list[Address]:
        """Raises ConnectionLost for a host that would lead to another folder: brokers name them."""
        if "{host}" in self._path and (host in {".", ".."} or not _IN_FOLDER.fullmatch(host)):
            raise ConnectionLost(f"the host {host!r} does not fit into the path {self._path!r}")
        path = self._path.replace("{host}", host).replace("{port}", str(port))
        return [Address(socket.AF_UNIX, (path,))]
