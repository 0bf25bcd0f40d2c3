"""HTTP requests: one timeout for all addresses of a host, and proxies."""

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
SILENT = ("192.0.2.1", 80)  # RFC 5737: unroutable


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The timeouts, in seconds, of the connections to ``SILENT``, which fail at once.

    A real listener with a full backlog is silent on Linux only.
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


def resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    def resolved(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def get(url: str, timeout: float) -> Answer:
    return request(
        "GET", Secret(url), body=None, headers=dict, context=None, timeout=timeout, most_bytes=1000
    )


def test_a_silent_address_leaves_time_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch, waits: list[float | None]
) -> None:
    """Unroutable IPv6, for example."""
    with serving(OK) as second:
        resolving_to(monkeypatch, SILENT, second)
        assert get(f"http://{HOST}:80/", timeout=20.0) == Answer(200, b"{}")
    assert waits == [pytest.approx(10.0, abs=1.0)]


def test_the_request_times_out_if_no_address_answers(
    monkeypatch: pytest.MonkeyPatch, waits: list[float | None]
) -> None:
    resolving_to(monkeypatch, SILENT, SILENT)
    with pytest.raises(NoAnswer, match=r"no answer within 20 s"):
        get(f"http://{HOST}:80/", timeout=20.0)
    assert len(waits) == 2


def test_an_unresolvable_host_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[tuple[object, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(NoAnswer, match=r"^Name or service not known$"):
        get(f"http://{HOST}:80/", timeout=20.0)


@pytest.mark.parametrize("url", ["http://host:99999/?key=canary", f"http://{'x' * 70}.y/?k=canary"])
def test_the_error_of_an_invalid_host_does_not_show_the_url(url: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        get(url, timeout=20.0)
    assert "canary" not in str(raised.value)


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("form", ["http://127.0.0.1:{}", "127.0.0.1:{}/"])
def test_the_proxy_of_the_environment_works(env: pytest.MonkeyPatch, name: str, form: str) -> None:
    with serving(OK) as (_, port), LocalProxy() as proxy:
        env.setenv(name, form.format(proxy.port))
        env.setenv("https_proxy", "http://nobody.example:1")
        assert get(f"http://{HOST}:{port}/x", timeout=20.0) == Answer(200, b"{}")
        assert proxy.asked == [f"{HOST}:{port}"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_localhost_is_reached_without_a_proxy(env: pytest.MonkeyPatch, host: str) -> None:
    """A login without TLS must not leave this machine."""
    with serving(OK) as (_, port):
        env.setenv("ALL_PROXY", "http://nobody.example:1")
        assert get(f"http://{host}:{port}/", timeout=20.0) == Answer(200, b"{}")


def test_no_proxy_hosts_bypass_proxies(env: pytest.MonkeyPatch, waits: list[float | None]) -> None:
    with serving(OK) as address:
        resolving_to(env, address)
        env.setenv("HTTP_PROXY", "http://nobody.example:1")
        env.setenv("NO_PROXY", "other.example,.example")
        assert get(f"http://{HOST}:80/", timeout=20.0) == Answer(200, b"{}")


def test_https_is_tunnelled_through_the_proxy(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = trustme.CA()
    cafile = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(cafile)
    server = str(tmp_path / "server.pem")
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(server)
    with FakeRegistry(certfile=server) as fake, LocalProxy(("me", "pa:ss")) as proxy:
        port = fake.url.rpartition(":")[2]
        env.setenv("HTTPS_PROXY", f"http://me:pa%3Ass@127.0.0.1:{proxy.port}")
        registry = SchemaRegistry(f"https://{HOST}:{port}", ssl_cafile=cafile, username="u")
        assert registry.register("s", Schema('"string"')).id == 1
        assert proxy.asked == [f"{HOST}:{port}"]
        assert "proxy-authorization" not in fake.asked[0].headers


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_wrong_proxy_credentials_are_reported_without_showing_them(
    env: pytest.MonkeyPatch, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalProxy(("me", "right")) as proxy:
        env.setenv(f"{scheme}_proxy", f"http://me:canary@127.0.0.1:{proxy.port}")
        registry = SchemaRegistry(f"{scheme}://{HOST}:8081")
        with pytest.raises(RegistryError) as raised:
            registry.latest("s")
    refused = f"by the proxy 127.0.0.1:{proxy.port}: it answers 407 Proxy Authentication Required"
    assert str(raised.value) == f"schema registry {scheme}://{HOST}:8081: {refused}"
    assert not raised.value.retriable
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    for secret in ("canary", b64encode(b"me:canary").decode()):
        assert secret not in "".join(shown.format())
        assert secret not in caplog.text


def test_an_unreachable_proxy_is_reported(env: pytest.MonkeyPatch) -> None:
    port = free_port()
    env.setenv("HTTPS_PROXY", f"http://me:canary@127.0.0.1:{port}")
    with pytest.raises(NoAnswer, match=rf"^by the proxy 127\.0\.0\.1:{port}: Connection refused$"):
        get(f"https://{HOST}/", timeout=20.0)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_proxy_that_never_answers_times_out(env: pytest.MonkeyPatch, answer: bytes) -> None:
    """Endless headers do not extend the timeout."""
    trickle = [answer, *[b"x" if answer else b""] * 1000]
    timed_out = pytest.raises(NoAnswer, match=r"^by the proxy .*: no answer within 0\.5 s$")
    with answering(lambda _: trickle, 0.02) as server, timed_out:
        env.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.port}")
        get(f"https://{HOST}/", timeout=0.5)


@pytest.mark.parametrize(
    "given",
    [
        "socks5://me:canary@127.0.0.1:1080",
        "https://me:canary@127.0.0.1:1080",
        "http://me:canary@:1",
        "http://canary:x/",
    ],
)
def test_an_unsupported_proxy_url_is_refused(env: pytest.MonkeyPatch, given: str) -> None:
    env.setenv("ALL_PROXY", given)
    with pytest.raises(ProxyRefused, match=r"HTTPS_PROXY or ALL_PROXY.*NO_PROXY") as raised:
        get(f"https://{HOST}/", timeout=20.0)
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    assert "canary" not in "".join(line for line in shown.format() if __file__ not in line)
