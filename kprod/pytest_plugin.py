"""Fixtures for test suites that need Kafka: ``pytest_plugins = ["kprod.pytest_plugin"]``.

kprod has no entry point for pytest. With one, pytest would load this module wherever kprod is
installed, and spend two seconds on rewriting the assertions in kprod's modules.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kprod.broker.embedded_broker import EmbeddedBroker
    from kprod.records.record_batch import StoredRecord

__all__ = ["kafka_broker", "kafka_records", "kafka_topic"]

Records = Callable[..., "list[StoredRecord]"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--kafka-nodes``, the number of nodes of ``kafka_broker``."""
    parser.getgroup("kafka").addoption(
        "--kafka-nodes", type=int, default=1, help="nodes of the embedded broker (default: 1)"
    )


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """An ``EmbeddedBroker`` for the whole run. Its address is ``kafka_broker.bootstrap_servers``.

    The broker's data is in a temporary directory, which is removed at the end. A fault stays active
    until the test clears it. The statement ``with kafka_broker.faults.active(Fault(...))`` clears
    the fault at the end of the block.
    """
    from kprod.broker.embedded_broker import EmbeddedBroker

    nodes: int = request.config.getoption("--kafka-nodes")
    with EmbeddedBroker(nodes=nodes) as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka_broker: EmbeddedBroker) -> str:
    """The name of a new topic with one partition, for this test only."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    kafka_broker.create_topic(name)
    return name


@pytest.fixture
def kafka_records(kafka_broker: EmbeddedBroker, kafka_topic: str) -> Records:
    """``kafka_records()`` returns a list of the current records of ``kafka_topic``.

    ``kafka_records(count, timeout=10)`` waits until there are ``count`` records, and fails the test
    after ``timeout`` seconds. A record has ``offset``, ``timestamp``, ``key``, ``value`` and
    ``headers``.
    """

    def records(count: int | None = None, timeout: float = 10.0) -> list[StoredRecord]:
        found = kafka_broker.records(kafka_topic, count, timeout=timeout)
        if count is not None and len(found) < count:
            pytest.fail(f"{len(found)} of {count} records are in {kafka_topic}: {found[-3:]}")
        return found

    return records
