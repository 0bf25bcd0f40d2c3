"""A way through an HTTP proxy: CONNECT (RFC 9110, 9.3.6)."""

from __future__ import annotations

import re
import socket
import time
from base64 import b64encode
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

LONGEST_HEAD = 64 * 1024
"""Bytes of an answer, headers and all."""
_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.[0-9] ([1-5][0-9][0-9])[ \r\n]")


def open_tunnel(proxy_url: str, host: str, port: int, timeout: float) -> socket.socket:
    """A socket to the place, by the proxy. Blocks for at most ``timeout`` seconds per address of
    the proxy to connect, and as many for its answer.

    Raises OSError. What that says has no word of the proxy's own in it, only the meaning of its
    status: a proxy may repeat the request, and the login that is in it.
    """
    proxy = urlsplit(proxy_url)
    sock = socket.create_connection((proxy.hostname or "", proxy.port or 80), timeout)
    try:
        until = time.monotonic() + timeout
        login = None
        if proxy.username:
            login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        sock.sendall(_request(host, port, login))
        while (status := _status(_head(sock, until))) < HTTPStatus.OK:
            pass  # an interim answer
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise ConnectionRefusedError(f"it answers {_meaning(status)}")
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
    """An answer up to its blank line. What comes behind that is the broker's, and left there."""
    head = b""
    while len(head) < LONGEST_HEAD:
        sock.settimeout(max(until - time.monotonic(), 1e-6))
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
        raise ConnectionError("its answer is none of HTTP; is it another kind of proxy?")
    return int(found[1])


def _meaning(status: int) -> str:
    known = {each.value: each.phrase for each in HTTPStatus}
    return f"{status} {known[status]}" if status in known else str(status)
