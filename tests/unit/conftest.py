"""Fixtures for tests of whole producers."""

from __future__ import annotations

import pytest

from tests.support.scripted_cluster import ScriptedBroker
from tests.support.scripted_producer import cluster_of


@pytest.fixture
def broker() -> ScriptedBroker:
    """A broker that leads both partitions of the topic "t"."""
    return cluster_of(2).brokers[1]
