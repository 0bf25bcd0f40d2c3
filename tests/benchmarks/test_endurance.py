"""The benchmark of minutes: every client sends what it says, and figures are of all parts."""

from __future__ import annotations

import pytest

from benchmarks.endurance.load import PARTS, Load
from benchmarks.endurance.turn import SIDES, run
from kprod.broker import EmbeddedBroker
from tests.support.committed_records import log_ends

pytestmark = pytest.mark.full

LOAD = Load(size=10, seconds=0.3, warm_up=0.1)


@pytest.mark.parametrize("side", SIDES)
def test_a_turn_sends_what_it_says(side: str) -> None:
    with EmbeddedBroker(topics={"turn": 2}) as broker:
        found = run(side, LOAD, broker.bootstrap_servers, "turn")
        arrived = sum(log_ends(broker.bootstrap_servers, "turn", 2))
    assert arrived == found["sent"]
    assert len(found["parts"]) == PARTS
    assert all(part["records"] and part["rss_bytes"] for part in found["parts"])
