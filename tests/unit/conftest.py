"""What whole producers are tested before."""

from __future__ import annotations

import pytest

from tests.support.scripted_cluster import ScriptedBroker
from tests.support.scripted_producer import cluster_of


@pytest.fixture
def broker() -> ScriptedBroker:
    """It leads both partitions of the topic "t"."""
    return cluster_of(2).brokers[1]
