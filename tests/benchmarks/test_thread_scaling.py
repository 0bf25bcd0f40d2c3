"""The benchmark of threads: all records of every turn arrive, whichever way they are sent."""

from __future__ import annotations

import pytest

from benchmarks.thread_scaling import EACH, SHARED, run
from kprod.broker import EmbeddedBroker
from tests.support.committed_records import log_ends


@pytest.mark.parametrize("way", [SHARED, EACH])
def test_a_turn_sends_what_it_says(way: str) -> None:
    with EmbeddedBroker(topics={"threads": 2}) as broker:
        found = run(way, 3, 3_000, broker.bootstrap_servers)
        arrived = sum(log_ends(broker.bootstrap_servers, "threads", 2))
    warm_up = 1 if way == SHARED else 3
    assert arrived == 3_000 + warm_up
    assert all(value > 0 for value in found.values())
