"""The same records over every transport, TLS mode and login mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kprod import KafkaProducer
from tests.support.certificates import Certificates
from tests.support.committed_records import read_back
from tests.support.guarded_broker import MECHANISMS, PROTECTIONS, GuardedBroker, guarded_broker
from tests.support.local_proxies import LocalProxy
from tests.support.recipes import recipe

ALL_LOGINS = [(protection, mechanism) for protection in PROTECTIONS for mechanism in MECHANISMS]
EXTREMES = [("plain", "none"), ("mtls", "SCRAM-SHA-512")]
"""The extremes: proxies and sockets only carry bytes."""
TRANSPORTS = {
    "tcp": ALL_LOGINS,
    "narrow": ALL_LOGINS,
    "socks5": EXTREMES,
    "socks5h": EXTREMES,
    "http": EXTREMES,
}
VALUES = [b"small", b"", b"x" * 1000, bytes(range(256)) * 4000, b"last"]


@pytest.fixture(scope="module")
def proxy() -> Iterator[LocalProxy]:
    with LocalProxy() as running:
        yield running


def transport_options(name: str, proxy: LocalProxy) -> dict[str, Any]:
    if name == "tcp":
        return {}
    if name == "narrow":  # partial and blocked writes
        return {"send_buffer_bytes": 4096}
    return {"proxy_url": f"{name}://127.0.0.1:{proxy.port}"}


def send_all(options: dict[str, Any], topic: str) -> list[int]:
    with KafkaProducer(max_block_ms=20_000, batch_size=2000, linger_ms=0, **options) as producer:
        futures = [producer.send(topic, value) for value in VALUES]
        return [future.get(timeout=20).offset for future in futures]


@pytest.mark.parametrize(
    ("name", "protection", "mechanism"),
    [(name, *guard) for name, guards in TRANSPORTS.items() for guard in guards],
)
def test_records_arrive_over_every_transport_and_login(
    name: str,
    protection: str,
    mechanism: str,
    guarded: GuardedBroker,
    proxy: LocalProxy,
) -> None:
    options = {**guarded.options(protection, mechanism), **transport_options(name, proxy)}
    topic = f"{name}-{protection}-{mechanism}"
    assert send_all(options, topic) == list(range(len(VALUES)))
    stored = read_back(guarded.address("plain", "none"), topic, 1)
    assert [record.value for record in stored] == VALUES


def test_the_recipe_of_proxies_delivers(guarded: GuardedBroker) -> None:
    options: dict[str, Any] = dict(recipe("Proxies and sockets"))
    url = urlsplit(options["proxy_url"])
    with LocalProxy((url.username or "", url.password or "")) as proxy:
        options |= {
            "bootstrap_servers": guarded.address("tls", "none"),
            "ssl_cafile": guarded.certificates.ca,
            "proxy_url": options["proxy_url"].replace(
                url.netloc.rpartition("@")[2], f"127.0.0.1:{proxy.port}"
            ),
        }
        assert send_all(options, "recipe") == list(range(len(VALUES)))
        assert proxy.asked


@pytest.fixture(scope="module")
def socket_broker(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GuardedBroker, Path]]:
    folder = tmp_path_factory.mktemp("s")
    with guarded_broker(certificates, {"t": 3}, folder=folder) as broker:
        yield broker, folder


@pytest.mark.parametrize(("protection", "mechanism"), EXTREMES)
def test_records_arrive_over_unix_domain_sockets(
    protection: str, mechanism: str, socket_broker: tuple[GuardedBroker, Path]
) -> None:
    guarded, folder = socket_broker
    options = guarded.options(protection, mechanism)
    path = str(folder / "{port}.sock")
    options |= {"transport": "unix", "unix_socket_path": path}
    assert send_all(options, f"{protection}-{mechanism}") == list(range(len(VALUES)))
