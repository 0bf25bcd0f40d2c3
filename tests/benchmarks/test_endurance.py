"""The endurance benchmark: record counts are correct, and every part has figures."""

from __future__ import annotations

import pytest

from benchmarks.endurance.load import PARTS, Load
from benchmarks.endurance.turn import SIDES, run
from kprod.broker import EmbeddedBroker
from tests.support.committed_records import log_ends

pytestmark = pytest.mark.full

LOAD = Load(size=10, seconds=0.3, warm_up=0.1)


@pytest.mark.parametrize("side", SIDES)
def test_a_run_reports_the_number_of_records_sent(side: str) -> None:
    with EmbeddedBroker(topics={"turn": 2}) as broker:
        found = run(side, LOAD, broker.bootstrap_servers, "turn")
        arrived = sum(log_ends(broker.bootstrap_servers, "turn", 2))
    assert arrived == found["sent"]
    assert len(found["parts"]) == PARTS
    assert all(part["records"] and part["rss_bytes"] for part in found["parts"])
