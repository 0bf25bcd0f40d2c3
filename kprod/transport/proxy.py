"""Brokers behind a proxy: SOCKS5, to which the package python-socks talks, or HTTP CONNECT."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from kprod.errors import ConnectionLost
from kprod.transport.http_tunnel import open_tunnel
from kprod.transport.tcp import TcpBackend
from kprod.transport.tcp_transport import TcpTransport
from kprod_ext import Mutex
from kprod_ext.peer_text import printable

TIMEOUT = 30.0
"""Seconds for the proxy to connect: nobody waits that long, but the thread ends then."""


class ProxyBackend(TcpBackend):
    """Connects to ``proxy_url`` and asks it for the broker, in a thread per connection.

    ``socks5h://`` and ``http://`` leave it to the proxy to resolve the broker's name, ``socks5://``
    does it here. Sizes of buffers in bytes, None leaves the system's. Threads as ``TcpBackend``.
    """

    def __init__(
        self,
        proxy_url: str,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        super().__init__(send_buffer_bytes, receive_buffer_bytes)
        self._url = proxy_url
        self._place = urlsplit(proxy_url).netloc.rpartition("@")[2]  # without what logs in
        self._asked: dict[TcpTransport, _Request] = {}

    def dial(self, host: str, port: int) -> TcpTransport:
        """See ``Backend.dial``."""
        self._check_open()
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        transport = TcpTransport(name, None, self._options, self._poller)
        self._asked[transport] = _Request(self._url, host, port, self.wake)
        return transport

    def _begin_resolved(self) -> None:
        super()._begin_resolved()
        for transport in [known for known, request in self._asked.items() if request.done]:
            request = self._asked.pop(transport)
            if request.connected is None:
                why = f"cannot connect to {transport.name} by the proxy {self._place}"
                transport.failed(ConnectionLost(f"{why}: {request.problem}"))
                self._stillborn[transport] = None
            elif not transport.adopt(request.connected):
                self._stillborn[transport] = None

    @property
    def _waits(self) -> bool:
        return bool(self._asked) or super()._waits

    def forget(self, transport: object) -> None:
        """See ``Backend.forget``."""
        super().forget(transport)  # type: ignore[arg-type]
        if isinstance(transport, TcpTransport) and transport in self._asked:
            self._asked.pop(transport).drop()

    def close(self) -> None:
        """See ``Backend.close``."""
        for request in self._asked.values():
            request.drop()
        self._asked.clear()
        super().close()


class _Request:
    """A connection the proxy is asked for. ``done`` is set last, by the thread that asks."""

    def __init__(self, url: str, host: str, port: int, wake: Callable[[], None]) -> None:
        self.connected: socket.socket | None = None
        self.problem = ""
        self.done = False
        self._lock = Mutex()  # guards whether anybody still wants the connection
        self._dropped = False
        self._thread = threading.Thread(
            target=self._ask, args=(url, host, port, wake), name=f"kprod-proxy-{host}", daemon=True
        )
        self._thread.start()

    def _ask(self, url: str, host: str, port: int, wake: Callable[[], None]) -> None:
        try:
            if url.startswith("http://"):
                found = open_tunnel(url, host, port, TIMEOUT)
            else:
                found = _by_socks(url, host, port)
        except Exception as error:  # python-socks has errors of its own; none tells a password
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.problem = printable(said) or type(error).__name__
        else:
            found.setblocking(False)
            with self._lock:
                if self._dropped:
                    found.close()
                else:
                    self.connected = found
        self.done = True
        wake()

    def drop(self) -> None:
        """Nobody wants it any more."""
        with self._lock:
            self._dropped = True
            if self.connected is not None:
                self.connected.close()


def _by_socks(url: str, host: str, port: int) -> socket.socket:
    from python_socks.sync import Proxy

    remote = url.startswith("socks5h://")
    plain = "socks5://" + url.removeprefix("socks5h://") if remote else url
    found = Proxy.from_url(plain, rdns=remote).connect(
        dest_host=host, dest_port=port, timeout=TIMEOUT
    )
    return found
