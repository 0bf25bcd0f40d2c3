"""Free ports on loopback, for servers that cannot report their port."""

from __future__ import annotations

import socket

from tests.support.waiting import await_true


def free_port() -> int:
    """A TCP port on 127.0.0.1 without a listener at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class HeldPort:
    """A TCP port on 127.0.0.1 that the system assigns to no other socket until ``release``.

    A server with SO_REUSEADDR can listen on it, also after a restart.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


def await_listener(port: int, seconds: float = 300.0) -> None:
    """Wait until a server accepts connections on ``port``."""
    why = f"no server listens on 127.0.0.1:{port} after {seconds} s"
    await_true(lambda: listens(port), seconds, why)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
