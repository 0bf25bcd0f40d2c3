"""Goals: ratios are computed per round, and compared by their median."""

from __future__ import annotations

import pytest

from benchmarks.acceptance.goals import GOALS, LEAST, MOST, Figure, Goal, Ratio, judge
from benchmarks.rivals.clients import CLIENTS
from benchmarks.rivals.comparison import Taken
from benchmarks.rivals.comparisons import comparisons

pytestmark = pytest.mark.full

TAKEN = {
    "race": Taken(
        {
            "a": [{"rate": 10.0}, {"rate": 30.0}, {"rate": 20.0}, None],
            "b": [{"rate": 2.0}, {"rate": 3.0}, None, {"rate": 1.0}],
        }
    )
}
RATIO = Ratio("race", "rate", "a", "b")


def test_ratios_compare_sides_of_the_same_round() -> None:
    assert list(RATIO.values(TAKEN, {})) == [5.0, 10.0]


@pytest.mark.parametrize(
    ("bound", "limit", "reached"),
    [(LEAST, 7.5, True), (LEAST, 7.6, False), (MOST, 7.5, True), (MOST, 7.4, False)],
)
def test_a_goal_is_reached_if_the_median_is_within_its_limit(
    bound: str, limit: float, reached: bool
) -> None:
    result = judge([Goal(1, "g", RATIO, bound, limit)], TAKEN, {})[0]
    assert result.spread is not None
    assert result.spread.median == 7.5
    assert result.reached is reached


def test_every_goal_uses_an_existing_comparison() -> None:
    sides = {one.name: one.sides for one in comparisons()}
    for goal in GOALS:
        if isinstance(goal.source, Ratio):
            asked = {goal.source.side, goal.source.other} & CLIENTS.keys()
            assert asked <= sides[goal.source.comparison].keys()
        if isinstance(goal.source, Figure):
            assert goal.source.side in sides[goal.source.comparison]
    assert {goal.number for goal in GOALS} == set(range(1, 8))
