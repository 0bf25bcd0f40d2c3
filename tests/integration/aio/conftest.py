"""Factories of AIOKafkaProducer."""

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
    """Producers for the broker shared by the tests of a module."""
    return partial(AIOKafkaProducer, bootstrap_servers=servers)
