"""One request over HTTP that ends in time, by urllib3"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kprod.lock import Lock
from kprod_ext.peer_text import printable

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse


class NoAnswer(Exception):
    """No whole answer came; the text says why. It names no address: a query may hold a key."""


class Distrusted(NoAnswer):
    """The server's certificate cannot be verified."""


class Answer(NamedTuple):
    """The server's answer. ``body`` is its first ``most_bytes`` bytes."""

    status: int
    body: bytes


def request(
    method: str,
    url: str,
    *,
    body: str | None,
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
    timeout: float,
    most_bytes: int,
) -> Answer:
    """Ask once, over a connection of its own; redirects are not followed. Any thread.

    ``context`` is for HTTPS. ``timeout``: seconds for all of it. Raises NoAnswer; Distrusted for a
    certificate that cannot be verified.
    """
    from urllib3 import PoolManager, Timeout
    from urllib3.exceptions import HTTPError, LocationValueError, TimeoutError

    reason, kind = "", NoAnswer
    with (
        _Unlogged(),
        TimeLimit(timeout) as limit,
        PoolManager(ssl_context=context, timeout=Timeout(total=timeout)) as pool,
    ):
        pool.pool_classes_by_scheme = limit.pool_classes()
        try:
            response = pool.request(
                method,
                url,
                body=body,
                headers=dict(headers),
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,  # asked for as it is: a bomb stays as small as it came
            )
            answer = Answer(response.status, _body(response, most_bytes))
            if not limit.over:  # then it may end too early
                return answer
        except TimeoutError:
            pass
        except LocationValueError:  # which has the whole address in its text
            reason = "its address cannot be read"
        except HTTPError as error:
            if isinstance(_first_cause(error), ssl.SSLCertVerificationError):
                kind = Distrusted
            reason = "" if limit.over and kind is NoAnswer else _told(error)
        except ValueError:  # of http.client, which has the header in its text
            reason = "a header of the request cannot be sent"
    raise kind(reason or f"no answer within {timeout:g} s")


class _Unlogged(logging.Filter):
    """Within it urllib3 logs nothing of this thread: at DEBUG it would, the whole address."""

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
    """The error that began it; urllib3 puts its own around it."""
    found = error
    while (deeper := found.__cause__ or found.__context__) is not None:
        found = deeper
    return found


def _told(error: Exception) -> str:
    """The text of the first cause, in one line."""
    found = _first_cause(error)
    said = found.strerror if isinstance(found, OSError) and found.strerror else str(found)
    return printable(" ".join(said.split())) or type(found).__name__


class TimeLimit:
    """Within ``with``: after so many ``seconds`` the connections of its pools end, as at a peer's.

    Headers, interim answers (RFC 9110, 15.2) and bodies may otherwise come for ever, each part of
    them in time. Used by one thread; ``over`` tells whether it has come to that.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = Lock()  # guards both
        self._sockets: list[socket.socket] = []
        self._over = False
        self._until = 0.0  # by the monotonic clock
        self._seconds = seconds
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
            def _new_conn(self) -> socket.socket:
                return limit._reached(self)

            def connect(self) -> None:
                super().connect()
                limit._watch(self.sock)

        class Encrypted(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return limit._reached(self)

            def connect(self) -> None:
                super().connect()
                limit._watch(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class EncryptedPool(HTTPSConnectionPool):
            ConnectionCls = Encrypted

        return {"http": PlainPool, "https": EncryptedPool}

    def _reached(self, connection: Any) -> socket.socket:
        """The host, by the first of its addresses that answers, each in its share of the time.

        urllib3 gives each of them all of it: where the first one is silent, none is left.
        """
        from urllib3.exceptions import ConnectTimeoutError

        failure: OSError = OSError("the name has no address")
        found = _resolved(connection.host, connection.port)
        for number, place in enumerate(found):
            left = max(self._until - time.monotonic(), 1e-6)
            share = left / (len(found) - number)
            try:
                return _connected(place, connection.socket_options or (), share, left)
            except OSError as error:
                failure = error
        if isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(connection, str(failure)) from failure
        raise failure

    def _watch(self, connected: Any) -> None:
        # Another descriptor of the same connection: TLS has taken over the one it came by, and
        # the thread that reads may close that at any time.
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
        self._until = time.monotonic() + self._seconds
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for each in self._sockets:
            each.close()


def _resolved(host: str, port: int) -> list[Any]:
    """The addresses of a name. Raises OSError, and LocationParseError for what is no name."""
    from urllib3.exceptions import LocationParseError
    from urllib3.util.connection import allowed_gai_family

    try:
        return socket.getaddrinfo(host.strip("[]"), port, allowed_gai_family(), socket.SOCK_STREAM)
    except UnicodeError:
        raise LocationParseError(host) from None


def _connected(
    place: Any, options: Iterable[Any], seconds: float, afterwards: float
) -> socket.socket:
    """A connection to one of the ``_resolved``, made within ``seconds``. Raises OSError."""
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
