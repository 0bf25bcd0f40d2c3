"""One time for a whole request, also where its host has several addresses."""

from __future__ import annotations

import socket
import traceback
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from kprod.config.secret import Secret
from kprod.schema import RegistryError, Schema, SchemaRegistry
from kprod.security.http_request import Answer, NoAnswer, ProxyRefused, request
from tests.support.answering_server import answering
from tests.support.local_proxies import LocalProxy
from tests.support.ports import free_port
from tests.support.schema_registry import FakeRegistry

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
    with answering(lambda _: [answer], often=True) as server:
        yield server.host, server.port


def named(monkeypatch: pytest.MonkeyPatch, *places: tuple[str, int]) -> None:
    def resolved(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def asked(url: str, timeout: float) -> Answer:
    return request(
        "GET", Secret(url), body=None, headers=dict, context=None, timeout=timeout, most_bytes=1000
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


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("form", ["http://127.0.0.1:{}", "127.0.0.1:{}/"])
def test_a_proxy_of_the_environment(bare: pytest.MonkeyPatch, name: str, form: str) -> None:
    with serving(OK) as (_, port), LocalProxy() as proxy:
        bare.setenv(name, form.format(proxy.port))
        bare.setenv("https_proxy", "http://nobody.example:1")
        assert asked(f"http://{HOST}:{port}/x", timeout=20.0) == Answer(200, b"{}")
        assert proxy.asked == [f"{HOST}:{port}"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_this_machine_is_asked_without_a_proxy(bare: pytest.MonkeyPatch, host: str) -> None:
    """A login that may go there without TLS must not leave it."""
    with serving(OK) as (_, port):
        bare.setenv("ALL_PROXY", "http://nobody.example:1")
        assert asked(f"http://{host}:{port}/", timeout=20.0) == Answer(200, b"{}")


def test_hosts_that_need_no_proxy(bare: pytest.MonkeyPatch, waits: list[float | None]) -> None:
    with serving(OK) as place:
        named(bare, place)
        bare.setenv("HTTP_PROXY", "http://nobody.example:1")
        bare.setenv("NO_PROXY", "other.example,.example")
        assert asked(f"http://{HOST}:80/", timeout=20.0) == Answer(200, b"{}")


def test_https_goes_through_a_proxy_end_to_end(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = trustme.CA()
    ours = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ours)
    server = str(tmp_path / "server.pem")
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(server)
    with FakeRegistry(certfile=server) as fake, LocalProxy(("me", "pa:ss")) as proxy:
        port = fake.url.rpartition(":")[2]
        bare.setenv("HTTPS_PROXY", f"http://me:pa%3Ass@127.0.0.1:{proxy.port}")
        registry = SchemaRegistry(f"https://{HOST}:{port}", ssl_cafile=ours, username="u")
        assert registry.register("s", Schema('"string"')).id == 1
        assert proxy.asked == [f"{HOST}:{port}"]
        assert "proxy-authorization" not in fake.asked[0].headers


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_another_login(
    bare: pytest.MonkeyPatch, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalProxy(("me", "right")) as proxy:
        bare.setenv(f"{scheme}_proxy", f"http://me:canary@127.0.0.1:{proxy.port}")
        registry = SchemaRegistry(f"{scheme}://{HOST}:8081")
        with pytest.raises(RegistryError) as raised:
            registry.latest("s")
    told = f"by the proxy 127.0.0.1:{proxy.port}: it answers 407 Proxy Authentication Required"
    assert str(raised.value) == f"schema registry {scheme}://{HOST}:8081: {told}"
    assert not raised.value.retriable
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    for secret in ("canary", b64encode(b"me:canary").decode()):
        assert secret not in "".join(shown.format())
        assert secret not in caplog.text


def test_a_proxy_that_is_not_there(bare: pytest.MonkeyPatch) -> None:
    port = free_port()
    bare.setenv("HTTPS_PROXY", f"http://me:canary@127.0.0.1:{port}")
    with pytest.raises(NoAnswer, match=rf"^by the proxy 127\.0\.0\.1:{port}: Connection refused$"):
        asked(f"https://{HOST}/", timeout=20.0)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_proxy_that_never_answers(bare: pytest.MonkeyPatch, answer: bytes) -> None:
    """A head without end does not prolong the time for the whole."""
    trickle = [answer, *[b"x" if answer else b""] * 1000]
    late = pytest.raises(NoAnswer, match=r"^by the proxy .*: no answer within 0\.5 s$")
    with answering(lambda _: trickle, 0.02) as server, late:
        bare.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.port}")
        asked(f"https://{HOST}/", timeout=0.5)


@pytest.mark.parametrize(
    "given",
    [
        "socks5://me:canary@127.0.0.1:1080",
        "https://me:canary@127.0.0.1:1080",
        "http://me:canary@:1",
        "http://canary:x/",
    ],
)
def test_what_is_no_http_proxy_is_refused(bare: pytest.MonkeyPatch, given: str) -> None:
    bare.setenv("ALL_PROXY", given)
    with pytest.raises(ProxyRefused, match=r"HTTPS_PROXY or ALL_PROXY.*NO_PROXY") as raised:
        asked(f"https://{HOST}/", timeout=20.0)
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    assert "canary" not in "".join(line for line in shown.format() if __file__ not in line)
