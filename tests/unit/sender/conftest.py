"""One broker; and what tests queue for a sender that they drive by hand has an end."""

from __future__ import annotations

import pytest

from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster
from tests.support.sender_rig import records_end

__all__ = ["records_end"]


@pytest.fixture
def broker() -> ScriptedBroker:
    """It leads both partitions of ``t``."""
    return ScriptedCluster(topics={"t": [1, 1]}).add(1)
