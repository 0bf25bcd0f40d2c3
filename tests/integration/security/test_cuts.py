"""Connections that are cut at random bytes, and a broker that is started again meanwhile.

``KPROD_CAMPAIGN=long`` does so with every way to a broker that is guarded in every way.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.transport.tcp import TcpBackend
from tests.support.certificates import Certificates
from tests.support.cutting_proxy import CutPlan, CuttingProxy
from tests.support.guarded_broker import MECHANISMS, PROTECTIONS, GuardedBroker, guarded_broker
from tests.support.judge import read_back
from tests.support.local_proxies import LocalProxy
from tests.support.slicing_backend import SlicingBackend

LONG = os.environ.get("KPROD_CAMPAIGN") == "long"
WAYS = ("tcp", "own", "unix", "socks5", "socks5h", "http")
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
EVERY = [(way, kind, login) for way in WAYS for kind in PROTECTIONS for login in MECHANISMS]
SOME = [("tcp", "tls", "none"), ("socks5", "mtls", "SCRAM-SHA-256")]
CUTS = 200 if LONG else 60
LARGE = b"x" * 1_000_000


def behind(name: str, cutter: CuttingProxy, path: str, open_proxy: LocalProxy) -> dict[str, Any]:
    """The options that lead every connection through ``cutter``, whatever address brokers tell."""

    class Through(TcpBackend):
        def dial(self, host: str, port: int) -> Any:
            return super().dial("127.0.0.1", cutter.port)

    class SlicedThrough(SlicingBackend):
        def dial(self, host: str, port: int) -> Any:
            return super().dial("127.0.0.1", cutter.port)

    if name == "unix":
        return {"transport": "unix", "unix_socket_path": path}
    if name in ("tcp", "own"):
        return {"transport": Through if name == "tcp" else SlicedThrough}
    cutter.upstream_port = open_proxy.port
    return {"proxy_url": f"{name}://127.0.0.1:{cutter.port}"}


@pytest.mark.parametrize(("name", "protection", "mechanism"), EVERY if LONG else SOME)
def test_nothing_is_lost_or_doubled_by_cuts(
    name: str, protection: str, mechanism: str, certificates: Certificates, tmp_path: Path
) -> None:
    """With five requests in flight; the broker is killed when half of the cuts are made."""
    number = EVERY.index((name, protection, mechanism))
    plan = CutPlan(seed=17 + number, cuts=CUTS, most_up=12_000, most_down=4_000)
    path = str(tmp_path / "s") if name == "unix" else None
    with ExitStack() as stack:
        cutter = stack.enter_context(CuttingProxy(plan, path))
        guarded = stack.enter_context(guarded_broker(certificates, {"t": 1}))
        address = guarded.address(protection, mechanism)
        cutter.upstream_port = int(address.rpartition(":")[2])
        options = {
            "bootstrap_servers": address,
            "reconnect_backoff_ms": 1,
            "reconnect_backoff_max_ms": 5,
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 5,
            "batch_size": 500,
            "compression_type": CODECS[number % len(CODECS)],
            **guarded.secrets(protection, mechanism),
            **behind(name, cutter, path or "", stack.enter_context(LocalProxy())),
        }
        sent = deliver(options, cutter, guarded)
        found = read_back(guarded.address("plain", "none"), "t", 1)
        values = [record.value for record in found]
    assert values == [*(b"%d" % n for n in range(sent)), LARGE]
    print(
        f"{name}, {protection}, {mechanism}: {cutter.cuts} cuts, {len(values)} records, each once"
    )


def deliver(options: dict[str, Any], cutter: CuttingProxy, guarded: GuardedBroker) -> int:
    """Send until all cuts are made, then a large record; how many came before that."""
    sent, killed = 0, False
    with KafkaProducer(**options) as producer:
        while cutter.cuts < CUTS:
            futures = [producer.send("t", b"%d" % n) for n in range(sent, sent + 20)]
            sent += 20
            if not killed and cutter.cuts >= CUTS // 2:
                killed = True
                guarded.broker.kill()
                guarded.broker.start()
            for future in futures:
                future.get(timeout=50)
        producer.send("t", LARGE).get(timeout=50)
    return sent
