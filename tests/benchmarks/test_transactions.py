"""The benchmark of transactions: records are committed once, ratios are to the best rival."""

from __future__ import annotations

import pytest

from benchmarks.transactions.__main__ import Goal
from benchmarks.transactions.load import Load
from benchmarks.transactions.turn import SIDES, run
from kprod.broker import EmbeddedBroker
from tests.support.committed_records import committed

pytestmark = pytest.mark.full

LOAD = Load(transactions=5, records=10, warm_up=2)


@pytest.mark.parametrize("side", SIDES)
def test_a_run_commits_every_record_once(side: str) -> None:
    with EmbeddedBroker(topics={"turn": 2}) as broker:
        found = run(side, LOAD, broker.bootstrap_servers, "turn")
        values = committed(broker.bootstrap_servers, "turn", 2)
    assert len(values) == LOAD.all_records == 70
    assert {len(value) for value in values} == {LOAD.size}
    assert len(found["commits"]) == LOAD.transactions
    assert sum(found["commits"]) <= found["seconds"]


@pytest.mark.parametrize(("at_least", "ratio"), [(True, 1.5), (False, 3.0)])
def test_a_ratio_compares_with_the_best_rival(at_least: bool, ratio: float) -> None:
    goal = Goal("small", "figure", at_least=at_least)
    assert goal.ratio(6.0, [2.0, 4.0]) == ratio
    assert goal.reached(ratio) is at_least
    assert goal.reached(1.0)
