"""Fixtures for tests of the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.node import Node
from tests.unit.broker.logs import open_log, opened
from tests.unit.broker.nodes import running_node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node without topics."""
    with running_node(tmp_path) as node:
        yield node


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """An empty log in ``tmp_path``."""
    return open_log(tmp_path)


@pytest.fixture(autouse=True)
def logs_are_closed() -> Iterator[None]:
    """Close the logs that the test has left open."""
    yield
    while opened:
        opened.pop().close()
