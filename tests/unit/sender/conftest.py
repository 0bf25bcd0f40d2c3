"""A scripted broker; records that are still queued at the end of a test are failed."""

from __future__ import annotations

import pytest

from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster
from tests.support.sender_rig import records_end

__all__ = ["records_end"]


@pytest.fixture
def broker() -> ScriptedBroker:
    """It leads both partitions of ``t``."""
    return ScriptedCluster(topics={"t": [1, 1]}).add(1)
