"""Wrong names, addresses and peers, and a process without file descriptors."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.errors import KprodTimeoutError
from kprod.transport.tcp import Address, TcpBackend
from tests.fault.loopback_resolver import NO_BACKOFF, LoopbackResolver
from tests.support.answering_server import answering
from tests.support.committed_records import read_back
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import producer_before
from tests.support.waiting import await_true

TOPIC = "places"


# Names --------------------------------------------------------------------------------------------


def test_a_host_name_that_does_not_exist_yet_is_retried() -> None:
    resolver = LoopbackResolver()
    with (
        EmbeddedBroker(topics={TOPIC: 1}) as broker,
        resolver.producer(max_block_ms=100) as producer,
    ):
        with pytest.raises(KprodTimeoutError, match="Name or service not known"):
            producer.send(TOPIC, b"v")
        resolver.port = broker.port
        for _ in range(100):
            with contextlib.suppress(KprodTimeoutError):
                future = producer.send(TOPIC, b"v")
                break
        assert future.get(20).offset == 0


def test_the_error_reports_a_slow_name_resolution() -> None:
    released = threading.Event()

    def resolve(host: str, port: int) -> list[Address]:
        released.wait(20)
        return []

    options = {"max_block_ms": 500, "socket_connection_setup_timeout_ms": 50, **NO_BACKOFF}
    with (
        KafkaProducer(
            bootstrap_servers="slow.example",
            transport=lambda: TcpBackend(resolver=resolve),
            **options,
        ) as producer,
        pytest.raises(KprodTimeoutError, match=r"slow\.example:9092.*the name is not resolved yet"),
    ):
        producer.send(TOPIC, b"v")
    released.set()


def test_a_broker_that_returns_at_another_address_is_found(tmp_path: Path) -> None:
    """The name is resolved again for each connection."""
    resolver = LoopbackResolver()
    with resolver.producer() as producer:
        for number in range(3):
            with EmbeddedBroker(tmp_path, topics={TOPIC: 1}) as broker:
                resolver.port = broker.port
                assert producer.send(TOPIC, b"%d" % number).get(20).offset == 2 * number
                assert producer.send(TOPIC, b"%d" % number).get(20).offset == 2 * number + 1
                stored = len(read_back(broker.bootstrap_servers, TOPIC, 1))
    assert stored == 6


# Peers that are not Kafka -------------------------------------------------------------------------


PEERS = {
    "web": (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP"),
    "tls": (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
    "ssh": (b"SSH-2.0-OpenSSH_9.2p1\r\n", "not a Kafka|impossible|frame"),
    "silent": (b"", "no answer to ApiVersions"),
}


@pytest.mark.parametrize(("greeting", "message"), PEERS.values(), ids=PEERS)
def test_the_error_names_a_peer_that_is_not_a_kafka_broker(greeting: bytes, message: str) -> None:
    options = {"max_block_ms": 800, "socket_connection_setup_timeout_ms": 100, **NO_BACKOFF}
    with (
        answering(lambda _: [greeting], 0 if greeting else 20, often=True, until=b"") as server,
        KafkaProducer(bootstrap_servers=f"{server.host}:{server.port}", **options) as producer,
        pytest.raises(KprodTimeoutError, match=rf"(?s){server.host}:{server.port}.*({message})"),
    ):
        producer.send(TOPIC, b"v")


def test_the_error_names_an_unreachable_advertised_address() -> None:
    cluster = ScriptedCluster(topics={TOPIC: [7]})
    cluster.add(1, "broker-1")
    cluster.add(7, "not-reachable-from-here")
    del cluster.listeners["not-reachable-from-here", 9092]
    options = {"request_timeout_ms": 100, "delivery_timeout_ms": 300, **NO_BACKOFF}
    with producer_before(cluster, **options) as producer:
        future = producer.send(TOPIC, b"v")
        with pytest.raises(KprodTimeoutError, match="not-reachable-from-here:9092"):
            future.get(20)


# Descriptors --------------------------------------------------------------------------------------


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """No file can be opened within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)
    taken = [spare]
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 32, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(spare))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def wait_until_disconnected(producer: KafkaProducer) -> None:
    """Otherwise a descriptor closed later could be used to connect."""
    await_true(lambda: not producer.metrics()["producer-metrics"]["connection-count"], 20)


def test_a_process_out_of_file_descriptors_recovers(tmp_path: Path) -> None:
    resolver = LoopbackResolver()
    with resolver.producer() as producer:
        with EmbeddedBroker(tmp_path, topics={TOPIC: 1}) as broker:
            resolver.port = broker.port
            assert producer.send(TOPIC, b"0").get(20).offset == 0
            resolver.port = None  # else it retries the old port and frees a descriptor
        wait_until_disconnected(producer)
        with EmbeddedBroker(tmp_path, topics={TOPIC: 1}) as broker:
            with no_descriptor_left():
                resolver.port = broker.port
                future = producer.send(TOPIC, b"1")
                lookups = resolver.lookups
                while resolver.lookups < lookups + 3:  # it keeps trying
                    with pytest.raises(KprodTimeoutError):
                        future.get(0.01)
            assert future.get(20).offset == 1
