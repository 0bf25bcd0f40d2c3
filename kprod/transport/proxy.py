"""Connections through a proxy: SOCKS5 with python-socks, or HTTP CONNECT (RFC 9110, 9.3.6)."""

from __future__ import annotations

import re
import socket
import threading
from base64 import b64encode
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from kprod.clock import monotonic
from kprod.errors import ConnectionLost
from kprod.lock import Lock
from kprod.transport.base import Readiness
from kprod.transport.tcp import TcpBackend
from kprod.transport.tcp_transport import TcpTransport
from kprod_ext.peer_text import printable

LONGEST_HEAD = 64 * 1024
"""Limit of an answer with its headers, in bytes."""
_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.[0-9] ([1-5][0-9][0-9])[ \r\n]")


def open_tunnel(proxy_url: str, host: str, port: int, timeout: float) -> socket.socket:
    """A socket to ``host:port`` through the proxy.

    Blocks for at most ``timeout`` seconds to connect to each address of the proxy, and for as long
    again to get its answer. Raises OSError. Its text contains only the meaning of the proxy's
    status: the proxy's own text may repeat the request, which includes the login.
    """
    proxy = urlsplit(proxy_url)
    sock = socket.create_connection((proxy.hostname or "", proxy.port or 80), timeout)
    try:
        until = monotonic() + timeout
        login = None
        if proxy.username or proxy.password:
            login = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
        sock.sendall(_request(host, port, login))
        while (status := _status(_head(sock, until))) < HTTPStatus.OK:
            pass  # an interim answer
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise ConnectionRefusedError(f"it answers {meaning(status)}")
    except TimeoutError:
        sock.close()
        raise TimeoutError(f"no answer within {timeout:g} s") from None
    except BaseException:
        sock.close()
        raise
    return sock


def _request(host: str, port: int, login: str | None) -> bytes:
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if login is not None:
        lines.append(f"Proxy-Authorization: Basic {b64encode(login.encode()).decode()}")
    return "\r\n".join([*lines, "", ""]).encode()


def _head(sock: socket.socket, until: float) -> bytes:
    """An answer up to its blank line. Later bytes come from the broker and are left unread."""
    head = b""
    while len(head) < LONGEST_HEAD:
        if (left := until - monotonic()) <= 0:  # a proxy that goes on sending never makes it wait
            raise TimeoutError
        sock.settimeout(left)
        seen = sock.recv(LONGEST_HEAD, socket.MSG_PEEK)
        if not seen:
            raise ConnectionResetError("it ended the connection")
        end = _END.search(head + seen)
        more = len(seen) if end is None else end.end() - len(head)
        head += sock.recv(more)
        if end is not None:
            return head
    raise ConnectionError(f"its answer has more than {LONGEST_HEAD} bytes")


def _status(head: bytes) -> int:
    found = _STATUS.match(head)
    if found is None:
        raise ConnectionError("its answer is not HTTP; is it another kind of proxy?")
    return int(found[1])


def meaning(status: int) -> str:
    """The status with its phrase in RFC 9110."""
    known = {each.value: each.phrase for each in HTTPStatus}
    return f"{status} {known[status]}" if status in known else str(status)


TIMEOUT = 30.0
"""Maximum seconds for each address of the proxy, and for its answer. Callers give up earlier."""


class ProxyBackend(TcpBackend):
    """Connects to brokers through ``proxy_url``, with a thread per connection attempt.

    With ``socks5h://`` and ``http://`` the proxy resolves the broker's name, with ``socks5://``
    this machine does. The other arguments are those of ``TcpBackend``, and so are the threads that
    may use it.
    """

    def __init__(
        self,
        proxy_url: str,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        busy_poll: float = 0.0,
    ) -> None:
        super().__init__(send_buffer_bytes, receive_buffer_bytes, busy_poll=busy_poll)
        self._url = proxy_url
        self._place = urlsplit(proxy_url).netloc.rpartition("@")[2]  # without user and password
        self._asked: dict[TcpTransport, _Request] = {}

    def dial(self, host: str, port: int) -> TcpTransport:
        """See ``Backend.dial``."""
        self._check_open()
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        transport = TcpTransport(name, None, self._options, self._poller)
        transport.awaits = f"the proxy {self._place} has not opened the connection yet"
        self._asked[transport] = _Request(self._url, host, port, self.wake)
        return transport

    def poll(self, timeout: float | None) -> list[Readiness]:
        """See ``Backend.poll``."""
        if self._asked:
            self._begin_connected()
        return super().poll(timeout)

    def _begin_connected(self) -> None:
        """Continue with the transports for which the proxy has answered."""
        for transport in [known for known, request in self._asked.items() if request.done]:
            request = self._asked.pop(transport)
            if request.connected is None:
                why = f"cannot connect to {transport.name} by the proxy {self._place}"
                transport.failed(ConnectionLost(f"{why}: {request.problem}"))
                self._stillborn[transport] = None
            elif not transport.adopt(request.connected):
                self._stillborn[transport] = None

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
    """A connection requested from the proxy. The requesting thread sets ``done`` last."""

    def __init__(self, url: str, host: str, port: int, wake: Callable[[], None]) -> None:
        self.connected: socket.socket | None = None
        self.problem = ""
        self.done = False
        self._lock = Lock()  # guards whether the connection is still wanted
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
        except Exception as error:  # python-socks has its own errors, without passwords
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
        """Drop the connection, which is no longer needed."""
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
