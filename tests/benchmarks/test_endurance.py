"""The benchmark of minutes: every client sends what it says, and figures are of all parts."""

from __future__ import annotations

import pytest

from benchmarks.endurance.__main__ import figures
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


def test_figures_are_of_all_parts() -> None:
    part = {"records": 100, "seconds": 1.0, "cpu_seconds": 0.5, "requests": 2, "rss_bytes": 10**6}
    last = {"records": 300, "seconds": 2.0, "cpu_seconds": 0.5, "requests": 6, "rss_bytes": 3e6}
    found = figures([part, last], 1_000)
    assert found["records_per_second"] == pytest.approx(400 / 3)
    assert found["cpu_us_per_record"] == pytest.approx(2_500)
    assert found["requests_per_gigabyte"] == pytest.approx(20_000)
    assert found["last_by_first"] == pytest.approx(1.5)
    assert (found["rss_mb_after_first_part"], found["rss_mb_at_the_end"]) == (1, 3)
