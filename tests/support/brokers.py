"""The brokers that tests write to: our embedded one, and four that are not ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from confluent_kafka import Producer as ConfluentProducer

from kprod.broker import EmbeddedBroker
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER
from tests.support.tansu_process import TansuProcess
from tests.support.topic_admin import TopicAdmin

StartBroker: TypeAlias = Callable[[dict[str, int]], AbstractContextManager[str]]
"""Starts a broker with these topics and their numbers of partitions; gives its address."""


@contextmanager
def embedded(topics: dict[str, int]) -> Iterator[str]:
    """The embedded broker, in this process; yields its bootstrap address."""
    with EmbeddedBroker(topics=topics) as broker:
        yield broker.bootstrap_servers


@contextmanager
def tansu(topics: dict[str, int]) -> Iterator[str]:
    """Tansu, a process; yields its address."""
    with TansuProcess(topics) as broker:
        yield broker.bootstrap_servers


@contextmanager
def librdkafka_mock(topics: dict[str, int]) -> Iterator[str]:
    """The mock cluster inside librdkafka: three brokers; topics come on first use, 4 partitions."""
    host = ConfluentProducer(
        {"bootstrap.servers": "replaced-by-the-mock", "test.mock.num.brokers": 3, "log_level": 3}
    )
    cluster = host.list_topics(timeout=20)
    yield ",".join(f"{b.host}:{b.port}" for b in cluster.brokers.values())
    host.flush(1)


@contextmanager
def apache_kafka(version: str, topics: dict[str, int]) -> Iterator[str]:
    """Apache Kafka, as a process with its log in a folder that is removed at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="apache-kafka-") as folder,
        ApacheKafka(Path(folder), version) as broker,
    ):
        for name, partitions in topics.items():
            TopicAdmin(broker.bootstrap_servers).create(name, partitions)
        yield broker.bootstrap_servers


APACHE_KAFKA: dict[str, StartBroker] = {
    f"kafka-{version}": partial(apache_kafka, version) for version in (NEWEST, OLDER)
}
BROKERS: dict[str, StartBroker] = {
    "embedded": embedded,
    "tansu": tansu,
    "librdkafka-mock": librdkafka_mock,
    **APACHE_KAFKA,
}
