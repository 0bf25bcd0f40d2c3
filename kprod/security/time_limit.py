"""A limit for everything that an HTTP server sends; urllib3's own are for each read by itself."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any, Self


class TimeLimit:
    """Within ``with``: after so many ``seconds`` the connections of its pools end, as at a peer's.

    Headers, interim answers (RFC 9110, 15.2) and bodies may otherwise come for ever, each part of
    them in time. Used by one thread; ``over`` tells whether it has come to that.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()  # guards both
        self._sockets: list[socket.socket] = []
        self._over = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.name, self._timer.daemon = "kprod-time-limit", True

    @property
    def over(self) -> bool:
        """Whether the time was up before the end of ``with``."""
        return self._over

    def pool_classes(self) -> dict[str, type[Any]]:
        """For ``PoolManager.pool_classes_by_scheme``."""
        from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
        from urllib3.connection import HTTPConnection, HTTPSConnection

        limit = self

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                limit._watch(self.sock)

        class Encrypted(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                limit._watch(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class EncryptedPool(HTTPSConnectionPool):
            ConnectionCls = Encrypted

        return {"http": PlainPool, "https": EncryptedPool}

    def _watch(self, connected: Any) -> None:
        # Another descriptor of the same connection: TLS has taken over the one it came by, and
        # whoever reads may close that at any time.
        ours = socket.socket(fileno=os.dup(connected.fileno()))
        with self._lock:
            self._sockets.append(ours)
            late = self._over
        if late:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._over = True
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for each in self._sockets:
            each.close()
