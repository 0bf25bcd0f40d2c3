"""Fixtures for test suites that need a Kafka: installed with kprod, found by pytest itself.

Not in ``kprod.broker``: pytest imports this in every run, and the broker only where it is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kprod.broker.embedded_broker import EmbeddedBroker
    from kprod.broker.records.record_batch import StoredRecord

Records = Callable[..., "list[StoredRecord]"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--kafka-nodes``: how many nodes ``kafka_broker`` has."""
    parser.getgroup("kafka").addoption(
        "--kafka-nodes", type=int, default=1, help="nodes of the embedded broker (default: 1)"
    )


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """An ``EmbeddedBroker`` for the whole run; ``kafka_broker.bootstrap_servers`` is its address.

    Its data are in a temporary directory and gone at the end. Faults a test asks for stay until
    it clears them: ``with kafka_broker.faults.active(Fault(...))`` does.
    """
    from kprod.broker.embedded_broker import EmbeddedBroker

    nodes: int = request.config.getoption("--kafka-nodes")
    with EmbeddedBroker(nodes=nodes) as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka_broker: EmbeddedBroker) -> str:
    """The name of a fresh topic with one partition, of this test alone."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    kafka_broker.create_topic(name)
    return name


@pytest.fixture
def kafka_records(kafka_broker: EmbeddedBroker, kafka_topic: str) -> Records:
    """``kafka_records()``: what is in ``kafka_topic`` now, a list of records.

    ``kafka_records(count, timeout=10)`` waits until there are that many, and fails the test when
    they do not come in time. A record has ``offset``, ``timestamp``, ``key``, ``value`` and
    ``headers``.
    """

    def records(count: int | None = None, timeout: float = 10.0) -> list[StoredRecord]:
        found = kafka_broker.records(kafka_topic, count, timeout=timeout)
        if count is not None and len(found) < count:
            pytest.fail(f"{len(found)} of {count} records are in {kafka_topic}: {found[-3:]}")
        return found

    return records
