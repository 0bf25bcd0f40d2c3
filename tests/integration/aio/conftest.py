"""Producers as a program for aiokafka makes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kprod.aio import AIOKafkaProducer
from kprod.broker import EmbeddedBroker

Make = Callable[..., AIOKafkaProducer]


@pytest.fixture
def make(broker: EmbeddedBroker) -> Make:
    return partial(AIOKafkaProducer, bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def shared(servers: str) -> Make:
    """Producers of the broker that the tests of a module share."""
    return partial(AIOKafkaProducer, bootstrap_servers=servers)
