"""Names, addresses and peers that are not what they should be, and a process out of descriptors."""

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
from tests.fault.names import AT_ONCE, Names
from tests.support.answering_server import answering
from tests.support.committed_records import read_back
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import producer_before
from tests.support.waiting import await_true

TOPIC = "places"


# Names --------------------------------------------------------------------------------------------


def test_a_name_that_does_not_exist_yet() -> None:
    names = Names()
    with EmbeddedBroker(topics={TOPIC: 1}) as broker, names.producer(max_block_ms=100) as producer:
        with pytest.raises(KprodTimeoutError, match="Name or service not known"):
            producer.send(TOPIC, b"v")
        names.port = broker.port
        for _ in range(100):
            with contextlib.suppress(KprodTimeoutError):
                future = producer.send(TOPIC, b"v")
                break
        assert future.get(20).offset == 0


def test_a_name_that_takes_too_long_to_resolve_is_told_so() -> None:
    may_answer = threading.Event()

    def resolve(host: str, port: int) -> list[Address]:
        may_answer.wait(20)
        return []

    options = {"max_block_ms": 500, "socket_connection_setup_timeout_ms": 50, **AT_ONCE}
    with (
        KafkaProducer(
            bootstrap_servers="slow.example",
            transport=lambda: TcpBackend(resolver=resolve),
            **options,
        ) as producer,
        pytest.raises(KprodTimeoutError, match=r"slow\.example:9092.*the name is not resolved yet"),
    ):
        producer.send(TOPIC, b"v")
    may_answer.set()


def test_a_broker_that_comes_back_at_another_address(tmp_path: Path) -> None:
    """The name is resolved anew for each connection."""
    names = Names()
    with names.producer() as producer:
        for number in range(3):
            with EmbeddedBroker(tmp_path, topics={TOPIC: 1}) as broker:
                names.port = broker.port
                assert producer.send(TOPIC, b"%d" % number).get(20).offset == 2 * number
                assert producer.send(TOPIC, b"%d" % number).get(20).offset == 2 * number + 1
                stored = len(read_back(broker.bootstrap_servers, TOPIC, 1))
    assert stored == 6


# Peers that are not Kafka -------------------------------------------------------------------------


STRANGERS = {
    "web": (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP"),
    "tls": (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
    "ssh": (b"SSH-2.0-OpenSSH_9.2p1\r\n", "not a Kafka|impossible|frame"),
    "nobody": (b"", "no answer to ApiVersions"),
}


@pytest.mark.parametrize(("greeting", "told"), STRANGERS.values(), ids=STRANGERS)
def test_a_peer_that_is_not_kafka_is_told_for_what_it_is(greeting: bytes, told: str) -> None:
    options = {"max_block_ms": 800, "socket_connection_setup_timeout_ms": 100, **AT_ONCE}
    with (
        answering(lambda _: [greeting], 0 if greeting else 20, often=True, until=b"") as server,
        KafkaProducer(bootstrap_servers=f"{server.host}:{server.port}", **options) as producer,
        pytest.raises(KprodTimeoutError, match=rf"(?s){server.host}:{server.port}.*({told})"),
    ):
        producer.send(TOPIC, b"v")


def test_an_advertised_address_nobody_listens_at_is_named() -> None:
    cluster = ScriptedCluster(topics={TOPIC: [7]})
    cluster.add(1, "broker-1")
    cluster.add(7, "not-reachable-from-here")
    del cluster.listeners["not-reachable-from-here", 9092]
    options = {"request_timeout_ms": 100, "delivery_timeout_ms": 300, **AT_ONCE}
    with producer_before(cluster, **options) as producer:
        future = producer.send(TOPIC, b"v")
        with pytest.raises(KprodTimeoutError, match="not-reachable-from-here:9092"):
            future.get(20)


# Descriptors --------------------------------------------------------------------------------------


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Within the block nothing can be opened in this process."""
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
    """What it closes later would be a descriptor to connect with."""
    await_true(lambda: not producer.metrics()["producer-metrics"]["connection-count"], 20)


def test_a_process_out_of_descriptors_goes_on_when_there_are_some(tmp_path: Path) -> None:
    names = Names()
    with names.producer() as producer:
        with EmbeddedBroker(tmp_path, topics={TOPIC: 1}) as broker:
            names.port = broker.port
            assert producer.send(TOPIC, b"0").get(20).offset == 0
            names.port = None  # else it tries the old port, with a descriptor that it gives back
        wait_until_disconnected(producer)
        with EmbeddedBroker(tmp_path, topics={TOPIC: 1}) as broker:
            with no_descriptor_left():
                names.port = broker.port
                future = producer.send(TOPIC, b"1")
                asked = names.asked
                while names.asked < asked + 3:  # it goes on trying
                    with pytest.raises(KprodTimeoutError):
                        future.get(0.01)
            assert future.get(20).offset == 1
