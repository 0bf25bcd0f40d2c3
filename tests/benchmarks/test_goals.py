"""The verdicts: ratios are taken round by round, and what was not measured is not reached."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from benchmarks.acceptance.goals import GOALS, LEAST, MOST, Figure, Goal, Import, Ratio, judge
from benchmarks.acceptance.tables import figure, goals_table
from benchmarks.rivals.clients import CLIENTS
from benchmarks.rivals.comparison import Taken
from benchmarks.rivals.comparisons import comparisons
from benchmarks.spread import Spread, spread_of

TAKEN = {
    "race": Taken(
        {
            "a": [{"rate": 10.0}, {"rate": 30.0}, {"rate": 20.0}, None],
            "b": [{"rate": 2.0}, {"rate": 3.0}, None, {"rate": 1.0}],
        }
    )
}
RATIO = Ratio("race", "rate", "a", "b")


def test_ratios_are_of_the_same_round() -> None:
    assert list(RATIO.values(TAKEN, {})) == [5.0, 10.0]


def test_figures_are_those_of_rounds_that_went_well() -> None:
    assert list(Figure("race", "rate", "a").values(TAKEN, {})) == [10.0, 30.0, 20.0]
    assert TAKEN["race"].spreads("a")["rate"].median == 20.0


def test_imports_are_times_and_a_number_of_packages() -> None:
    imports = {"import_ms": [5.0, 6.0], "unwanted": ["kio"]}
    assert list(Import("import_ms").values({}, imports)) == [5.0, 6.0]
    assert list(Import("unwanted").values({}, imports)) == [1]
    assert list(Import("unwanted").values({}, {})) == []


@pytest.mark.parametrize(
    ("bound", "limit", "reached"),
    [(LEAST, 7.5, True), (LEAST, 7.6, False), (MOST, 7.5, True), (MOST, 7.4, False)],
)
def test_the_median_is_judged(bound: str, limit: float, reached: bool) -> None:
    judged = judge([Goal(1, "g", RATIO, bound, limit)], TAKEN, {})[0]
    assert judged.spread is not None
    assert judged.spread.median == 7.5
    assert judged.reached is reached


def test_nothing_measured_is_nothing_reached() -> None:
    judged = judge(GOALS, {}, {})
    assert not any(one.reached for one in judged)
    console = Console(file=StringIO(), width=200)
    console.print(goals_table(judged))


def test_every_goal_is_about_a_comparison_there_is() -> None:
    sides = {one.name: one.sides for one in comparisons()}
    for goal in GOALS:
        if isinstance(goal.source, Ratio):
            asked = {goal.source.side, goal.source.other} & CLIENTS.keys()
            assert asked <= sides[goal.source.comparison].keys()
        if isinstance(goal.source, Figure):
            assert goal.source.side in sides[goal.source.comparison]
    assert {goal.number for goal in GOALS} == set(range(1, 8))


def test_spread() -> None:
    assert spread_of([4.0, 1.0, 3.0, 2.0, 5.0]) == Spread(5, 1.0, 2.0, 3.0, 4.0, 5.0)
    assert spread_of([7.0]) == Spread(1, 7.0, 7.0, 7.0, 7.0, 7.0)
    assert spread_of([1.23456, 2.0]).as_json()["min"] == 1.235
    with pytest.raises(ValueError, match="no values"):
        spread_of([])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0018, "0.0018"),
        (0.0157, "0.016"),
        (0.25, "0.25"),
        (1.094, "1.09"),
        (5.0, "5"),
        (54.23, "54.2"),
        (1_748_000.4, "1,748,000"),
    ],
)
def test_a_figure_has_digits_that_mean_something(value: float, shown: str) -> None:
    assert figure(value) == shown
