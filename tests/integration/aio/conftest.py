"""Brokers with a topic of two partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kprod.aio import AIOKafkaProducer
from kprod.broker import EmbeddedBroker

Make = Callable[..., AIOKafkaProducer]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Of a broker that no test changes."""
    with EmbeddedBroker(topics={"t": 2}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """One of the test's own."""
    with EmbeddedBroker(topics={"t": 2}) as made:
        yield made


@pytest.fixture
def make(broker: EmbeddedBroker) -> Make:
    return partial(AIOKafkaProducer, bootstrap_servers=broker.bootstrap_servers)
