"""Brokers that start within a moment: our embedded one, and two that are not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from confluent_kafka import Producer as ConfluentProducer

from kprod.broker import EmbeddedBroker
from tests.support.tansu_process import TansuProcess

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
    cluster = host.list_topics(timeout=120)
    yield ",".join(f"{b.host}:{b.port}" for b in cluster.brokers.values())
    host.flush(1)


BROKERS: dict[str, StartBroker] = {
    "embedded": embedded,
    "tansu": tansu,
    "librdkafka-mock": librdkafka_mock,
}
