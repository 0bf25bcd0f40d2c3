"""A single HTTP request with an overall time-out, with urllib3."""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.client import PROXY_AUTHENTICATION_REQUIRED, REQUEST_TIMEOUT, TOO_MANY_REQUESTS
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

from kprod.clock import monotonic
from kprod.config.secret import Secret
from kprod.lock import Lock
from kprod.security.http_proxy import HttpProxy, UnusableProxy, environment_proxy
from kprod.transport.proxy import meaning
from kprod_ext.peer_text import printable

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

MAY_PASS = (REQUEST_TIMEOUT, TOO_MANY_REQUESTS)
_TUNNEL = re.compile(r"Tunnel connection failed: ([0-9]{3})")


class NoAnswer(Exception):
    """There was no complete answer. The text says why, but omits the URL, which may have a key."""


class Distrusted(NoAnswer):
    """The server's certificate cannot be verified."""


class ProxyRefused(NoAnswer):
    """The environment's proxy is unusable, or refuses the request. Retries do not help."""


class Answer(NamedTuple):
    """The server's answer. ``body`` has at most the first ``most_bytes`` bytes."""

    status: int
    body: bytes


def request(
    method: str,
    url: Secret,
    *,
    body: str | None,
    headers: Callable[[], Mapping[str, str]],
    context: ssl.SSLContext | None,
    timeout: float,
    most_bytes: int,
) -> Answer:
    """Send one request over a new connection, without following redirects. Thread-safe.

    ``url`` is a Secret, and ``headers`` is a callable, so that no traceback shows secrets.
    ``context`` is for HTTPS. ``timeout`` is in seconds, for the whole request. Uses the proxy of
    the environment, if any. Raises Distrusted if the server's certificate cannot be verified,
    ProxyRefused if the proxy is unusable or refuses the request, and NoAnswer for other failures.
    """
    from urllib3.exceptions import HTTPError

    try:
        proxy = environment_proxy(*_place(url))
    except UnusableProxy as error:
        raise ProxyRefused(str(error)) from None
    by = "" if proxy is None else f"by the proxy {proxy.place}: "
    fields = {name: Secret(value) for name, value in headers().items()}
    refusal = NoAnswer("")
    with (
        _Unlogged(),
        TimeLimit(timeout) as limit,
        _pool(proxy, context, timeout) as pool,
    ):
        pool.pool_classes_by_scheme = limit.pool_classes()
        try:
            response = pool.request(
                method,
                url.reveal(),
                body=body,
                headers={name: value.reveal() for name, value in fields.items()},
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,  # so that a compressed bomb is not expanded
            )
            answer = Answer(response.status, _body(response, most_bytes))
            if proxy is not None and answer.status == PROXY_AUTHENTICATION_REQUIRED:
                refusal = _refusal_of_proxy(answer.status)
            elif not limit.over:  # otherwise the body may be incomplete
                return answer
        except (HTTPError, ValueError) as error:
            refusal = _refusal(error)
    late = limit.over and type(refusal) is NoAnswer
    reason = "" if late else str(refusal)
    raise type(refusal)(by + (reason or f"no answer within {timeout:g} s"))


def _refusal(error: Exception) -> NoAnswer:
    """The NoAnswer for an exception. It has no text if the time was up."""
    from urllib3.exceptions import HTTPError, LocationValueError, ProxyError, TimeoutError

    untrusted = isinstance(_first_cause(error), ssl.SSLCertVerificationError)
    match error:
        case TimeoutError():
            return NoAnswer("")
        case LocationValueError():  # its text contains the whole URL
            return NoAnswer("its address cannot be read")
        case ProxyError():
            reason = _reason(error)
            if (refused := _TUNNEL.match(reason)) is not None:
                return _refusal_of_proxy(int(refused[1]))
            return NoAnswer(reason)
        case HTTPError():
            return Distrusted(_reason(error)) if untrusted else NoAnswer(_reason(error))
    # A ValueError of http.client; its text contains the header.
    return NoAnswer("a header of the request cannot be sent")


def _refusal_of_proxy(status: int) -> NoAnswer:
    """The error for a proxy's status, without the proxy's text, which may repeat the login."""
    final = 400 <= status < 500 and status not in MAY_PASS
    return (ProxyRefused if final else NoAnswer)(f"it answers {meaning(status)}")


def _place(url: Secret) -> tuple[str, str]:
    """The scheme of a URL, and its host with the port."""
    scheme, _, rest = url.reveal().partition("://")
    return scheme.lower(), urlsplit(f"//{rest}").netloc.rpartition("@")[2]


def _pool(proxy: HttpProxy | None, context: ssl.SSLContext | None, timeout: float) -> PoolManager:
    from urllib3 import PoolManager, ProxyManager, Timeout

    total = Timeout(total=timeout)
    if proxy is None:
        return PoolManager(ssl_context=context, timeout=total)
    login = proxy.authorization
    return ProxyManager(
        proxy.url,
        proxy_headers={} if login is None else {"proxy-authorization": login.reveal()},
        ssl_context=context,
        timeout=total,
    )


class _Unlogged(logging.Filter):
    """Suppresses urllib3's messages of this thread, which contain the whole URL at DEBUG."""

    _log = logging.getLogger("urllib3.connectionpool")

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._log.addFilter(self)

    def __exit__(self, *_: object) -> None:
        self._log.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread


def _body(response: BaseHTTPResponse, most_bytes: int) -> bytes:
    parts, room = [], most_bytes
    try:
        while room and (part := response.read1(room)):
            parts.append(part)
            room -= len(part)
    finally:
        response.close()
    return b"".join(parts)


def _first_cause(error: BaseException) -> BaseException:
    """The original error, which urllib3 has wrapped in its own errors."""
    found = error
    while (deeper := found.__cause__ or found.__context__) is not None:
        found = deeper
    return found


def _reason(error: Exception) -> str:
    """The text of the first cause, in one line."""
    found = _first_cause(error)
    said = found.strerror if isinstance(found, OSError) and found.strerror else str(found)
    return printable(" ".join(said.split())) or type(found).__name__


class TimeLimit:
    """Shuts down the connections of its pools ``seconds`` after the start of a ``with`` block.

    urllib3's time-outs are not enough, because they apply to each part that arrives. Headers,
    interim responses (RFC 9110, 15.2) and bodies could go on for ever. For one thread only.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = Lock()  # guards both
        self._sockets: list[socket.socket] = []
        self._over = False
        self._until = 0.0  # on the monotonic clock
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._end)
        self._timer.name, self._timer.daemon = "kprod-time-limit", True

    @property
    def over(self) -> bool:
        """Whether the time was up before the end of the ``with`` block."""
        return self._over

    def pool_classes(self) -> dict[str, type[Any]]:
        """The value for ``PoolManager.pool_classes_by_scheme``."""
        from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
        from urllib3.connection import HTTPConnection, HTTPSConnection

        limit = self

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return limit._reached(self)

        class Encrypted(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return limit._reached(self)

            def _tunnel(self) -> None:
                super()._tunnel()
                if limit.over:  # the shutdown may look like the end of the proxy's answer
                    raise TimeoutError

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class EncryptedPool(HTTPSConnectionPool):
            ConnectionCls = Encrypted

        return {"http": PlainPool, "https": EncryptedPool}

    def _reached(self, connection: Any) -> socket.socket:
        """Connect to the first of the host's addresses that answers.

        Each address has an equal share of the time. urllib3 would give the whole time to each
        address, so the first address could use it all without answering.
        """
        from urllib3.exceptions import ConnectTimeoutError

        failure: OSError = OSError("the name has no address")
        found = _resolved(connection.host, connection.port)
        for number, place in enumerate(found):
            left = max(self._until - monotonic(), 1e-6)
            share = left / (len(found) - number)
            try:
                made = _connected(place, connection.socket_options or (), share, left)
            except OSError as error:
                failure = error
            else:
                self._watch(made)
                return made
        if isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(connection, str(failure)) from failure
        raise failure

    def _watch(self, connected: socket.socket) -> None:
        # A duplicate descriptor: TLS takes over the original, and the reading thread may close
        # that at any time.
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
        self._until = monotonic() + self._seconds
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for each in self._sockets:
            each.close()


def _resolved(host: str, port: int) -> list[Any]:
    """The addresses of a name. Raises OSError, and LocationParseError for an invalid name."""
    from urllib3.exceptions import LocationParseError
    from urllib3.util.connection import allowed_gai_family

    try:
        return socket.getaddrinfo(host.strip("[]"), port, allowed_gai_family(), socket.SOCK_STREAM)
    except UnicodeError:
        raise LocationParseError(host) from None


def _connected(
    place: Any, options: Iterable[Any], seconds: float, afterwards: float
) -> socket.socket:
    """A connection to one resolved address, within ``seconds``. Raises OSError."""
    family, kind, protocol, _, address = place
    made = socket.socket(family, kind, protocol)
    try:
        for option in options:
            made.setsockopt(*option)
        made.settimeout(seconds)
        made.connect(address)
        made.settimeout(afterwards)
    except BaseException:
        made.close()
        raise
    return made
