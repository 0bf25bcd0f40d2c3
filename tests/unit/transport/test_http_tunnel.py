"""Answers of HTTP proxies to CONNECT: in pieces, slow, endless, or repeating the request."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from kprod.errors import ConnectionLost
from kprod.transport.proxy import LONGEST_HEAD, ProxyBackend, open_tunnel
from kprod.transport.tcp_transport import TcpTransport
from tests.support.answering_server import AnsweringServer, answering

OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
FROM_BROKER = b"\x00\x00\x00\x05\x00\x00\x00\x00\x00"


def url_of(proxy: AnsweringServer, login: str = "us%65r:pass%40word") -> str:
    return f"http://{login}@127.0.0.1:{proxy.port}"


def answers(*pieces: bytes) -> AbstractContextManager[AnsweringServer]:
    """A proxy that answers CONNECT with these pieces, a moment apart."""
    return answering(lambda request: [one.replace(b"ECHO", request) for one in pieces], 0.02)


@contextmanager
def dialled(proxy: AnsweringServer) -> Iterator[tuple[ProxyBackend, TcpTransport]]:
    """An established connection through the proxy; raises what prevents it."""
    backend = ProxyBackend(url_of(proxy))
    transport = backend.dial("broker", 9092)
    try:
        while not transport.advance():
            backend.poll(1)
        yield backend, transport
    finally:
        transport.close()
        backend.close()


IN_PIECES = {
    "at once": [OK],
    "status and headers": [b"HTTP/1.1 200 OK\r\n", b"via: proxy\r\n\r\n"],
    "single bytes": [bytes([byte]) for byte in OK],
    "within the end": [OK[:-1], OK[-1:]],
    "headers of many kinds": [OK[:-2] + b"x: " + b"y" * 60_000, b"\r\n\r\n"],
    "an interim answer first": [b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n", OK],
    "plain line feeds": [b"HTTP/1.0 200 OK\n\n"],
    "another success": [b"HTTP/1.1 204\r\n\r\n"],
    "the broker's bytes with it": [OK + FROM_BROKER],
}


@pytest.mark.parametrize("pieces", IN_PIECES.values(), ids=IN_PIECES)
def test_a_proxy_answer_in_any_pieces_is_read_exactly(pieces: list[bytes]) -> None:
    more = [] if pieces[-1].endswith(FROM_BROKER) else [FROM_BROKER]
    with answers(*pieces, *more) as proxy, dialled(proxy) as (backend, transport):
        received = b""
        while len(received) < len(FROM_BROKER):
            backend.poll(1)
            received += transport.receive(100) or b""
    assert received == FROM_BROKER


def test_the_connect_request_to_the_proxy() -> None:
    with answers(OK) as proxy, open_tunnel(url_of(proxy), "::1", 9092, 20):
        lines = proxy.requests[0].split(b"\r\n")
    assert lines[:2] == [b"CONNECT [::1]:9092 HTTP/1.1", b"Host: [::1]:9092"]
    kind, login = lines[2].rsplit(b" ", 1)
    assert (kind, base64.b64decode(login)) == (b"Proxy-Authorization: Basic", b"user:pass@word")


@pytest.mark.parametrize("login", ["user", "user:", ":password"])
def test_a_login_without_user_or_password_is_sent(login: str) -> None:
    with answers(OK) as proxy, open_tunnel(url_of(proxy, login), "broker", 9092, 20):
        sent = proxy.requests[0].split(b"\r\n")[2].rsplit(b" ", 1)[1]
    assert base64.b64decode(sent).decode() == (login if ":" in login else f"{login}:")


REFUSALS = {
    "the request repeated as reason": (b"HTTP/1.1 407 ECHO\r\n\r\n", "407 Proxy Authentication"),
    "the request repeated": (b"ECHO", "not HTTP"),
    "escape codes": (b"HTTP/1.1 502 \x1b[31mno\r\n\r\n", "502 Bad Gateway"),
    "an unknown status": (b"HTTP/1.1 599 \xff" + b"x" * 1000 + b"\r\n\r\n", "it answers 599"),
    "garbage": (b"SSH-2.0-x\r\n\r\n", "not HTTP"),
    "no status": (b"HTTP/1.1 2000 OK\r\n\r\n", "not HTTP"),
    "the end of the connection": (b"HTTP/1.1 200", "ended the connection"),
    "headers without end": (OK[:-2] + b"x: y\r\n" * LONGEST_HEAD, "more than 65536 bytes"),
}


@pytest.mark.parametrize(("answer", "words"), REFUSALS.values(), ids=REFUSALS)
def test_the_error_of_a_refusal_has_no_text_of_the_proxy(answer: bytes, words: str) -> None:
    with answers(answer) as proxy, pytest.raises(OSError, match=words) as raised:
        open_tunnel(url_of(proxy), "broker", 9092, 20)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 200
    assert base64.b64encode(b"user:pass@word").decode() not in str(raised.value)


@pytest.mark.parametrize("pieces", [[b"x"] * 1000, [b"HTTP/1.1 102 Processing\r\n\r\n" * 100_000]])
def test_an_endless_proxy_answer_times_out(pieces: list[bytes]) -> None:
    late = pytest.raises(TimeoutError, match=r"no answer within 0\.2 s")
    with answers(*pieces) as proxy, late:
        open_tunnel(url_of(proxy), "broker", 9092, 0.2)


def test_the_error_of_the_backend_names_the_proxy_without_the_login() -> None:
    refused = pytest.raises(ConnectionLost, match="by the proxy 127")
    with answers(b"HTTP/1.1 407 ECHO\r\n\r\n") as proxy, refused as raised, dialled(proxy):
        raise AssertionError("the proxy accepted the login")
    assert "pass" not in str(raised.value)
    assert "Basic" not in str(raised.value)


def test_the_progress_names_a_proxy_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        backend = ProxyBackend(f"http://user:pass@{place}")
        transport = backend.dial("broker", 9092)
        assert transport.progress() == f"the proxy {place} has not opened the connection yet"
        backend.close()
