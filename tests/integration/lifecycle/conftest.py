"""A broker process that the tests freeze, kill and start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kprod.admin.cluster_client import connect
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {}) as process:
        yield process


@pytest.fixture
def broker(
    shared_process: BrokerProcess, request: pytest.FixtureRequest
) -> Iterator[BrokerProcess]:
    """The process with an empty topic: ``TOPIC`` with ``PARTITIONS`` of the module."""
    topic, partitions = request.module.TOPIC, request.module.PARTITIONS
    with connect(shared_process.bootstrap_servers, 120, {}) as client:
        client.create_topic(topic, partitions, 1, {})
    yield shared_process
    shared_process.go_on()
    with connect(shared_process.bootstrap_servers, 120, {}) as client:
        client.delete_topic(topic)
