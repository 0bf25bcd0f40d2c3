"""One time for a whole request, also where its host has several addresses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kprod.security.http_request import Answer, NoAnswer, request

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
HOST = "issuer.example"
SILENT = ("192.0.2.1", 80)  # RFC 5737: leads nowhere


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The time limits, in seconds, of the connections to ``SILENT``; none of them is waited for.

    Real listeners with full queues are silent on Linux only.
    """
    seen: list[float | None] = []

    class Socket(socket.socket):
        def connect(self, address: Any) -> None:
            if address == SILENT:
                seen.append(self.gettimeout())
                raise TimeoutError("timed out")
            super().connect(address)

    monkeypatch.setattr(socket, "socket", Socket)
    return seen


@contextmanager
def serving(answer: bytes) -> Iterator[tuple[str, int]]:
    """Gives this answer to each request over HTTP.

    The port may have been that of a broker whose clients, in other tests, still look for it.
    """

    def serve() -> None:
        with suppress(OSError):  # the listener has been closed
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.settimeout(1)
                    if client.recv(65536).startswith(b"GET "):
                        client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def named(monkeypatch: pytest.MonkeyPatch, *places: tuple[str, int]) -> None:
    """``HOST`` has these addresses."""

    def resolved(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def asked(url: str, timeout: float) -> Answer:
    return request(
        "GET", url, body=None, headers={}, context=None, timeout=timeout, most_bytes=1000
    )


def test_an_address_that_is_silent_leaves_time_for_the_others(
    monkeypatch: pytest.MonkeyPatch, waits: list[float | None]
) -> None:
    """IPv6 that leads nowhere, say: the first address had all the time there was."""
    with serving(OK) as second:
        named(monkeypatch, SILENT, second)
        assert asked(f"http://{HOST}:80/", timeout=20.0) == Answer(200, b"{}")
    assert waits == [pytest.approx(10.0, abs=1.0)]


def test_no_address_answers_in_time(
    monkeypatch: pytest.MonkeyPatch, waits: list[float | None]
) -> None:
    named(monkeypatch, SILENT, SILENT)
    with pytest.raises(NoAnswer, match=r"no answer within 20 s"):
        asked(f"http://{HOST}:80/", timeout=20.0)
    assert len(waits) == 2


def test_the_last_address_that_refuses_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        place = gone.getsockname()
    named(monkeypatch, place, place)
    with pytest.raises(NoAnswer, match="Connection refused"):
        asked(f"http://{HOST}:80/", timeout=20.0)


def test_a_name_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[tuple[object, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(NoAnswer, match=r"^Name or service not known$"):
        asked(f"http://{HOST}:80/", timeout=20.0)


@pytest.mark.parametrize("url", ["http://host:99999/?key=canary", f"http://{'x' * 70}.y/?k=canary"])
def test_an_address_that_cannot_be_is_not_told(url: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        asked(url, timeout=20.0)
    assert "canary" not in str(raised.value)
