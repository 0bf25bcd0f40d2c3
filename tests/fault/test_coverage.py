"""COVERAGE.md says what is true: the tests it names are there, and they cover most of its lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("COVERAGE.md")
ROW = re.compile(r"^\| (?P<name>[^|]+) \| (?P<what>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(?P<path>[\w/]+\.py)::(?P<name>\w+)`")
NUMBER = re.compile(r"([NBSPT])(\d+)")
NOT_YET = "not yet: "
SHARE = 0.8


class Line(NamedTuple):
    """One line of a table; ``tests`` are pairs of a path and a name."""

    name: str
    tests: list[tuple[str, str]]
    reason: str


def lines() -> list[Line]:
    found = []
    for row in ROW.finditer(PAGE.read_text()):
        cell = row["tests"]
        tests = [(test["path"], test["name"]) for test in TEST.finditer(cell)]
        found.append(Line(row["name"], tests, cell.removeprefix(NOT_YET)))
    return found


SCENARIOS = [line for line in lines() if NUMBER.fullmatch(line.name)]
BUGS = [line for line in lines() if not NUMBER.fullmatch(line.name) and line.name != "where"]


@pytest.mark.parametrize("line", [*SCENARIOS, *BUGS], ids=lambda line: line.name)
def test_the_tests_that_are_named_exist(line: Line) -> None:
    """Renamed or moved a test? Then do so in COVERAGE.md, too."""
    assert line.tests or line.reason
    for path, name in line.tests:
        code = (TESTS / path).read_text()
        assert re.search(rf"^\s*(async )?def {name}\(", code, re.MULTILINE), f"{path}::{name}"


def test_scenarios_are_numbered_without_gaps() -> None:
    by_kind: dict[str, list[int]] = {}
    for line in SCENARIOS:
        kind, number = NUMBER.fullmatch(line.name).groups()  # type: ignore[union-attr]
        by_kind.setdefault(kind, []).append(int(number))
    assert {kind: len(numbers) for kind, numbers in by_kind.items()} == {
        "N": 31,
        "B": 30,
        "S": 20,
        "P": 29,
        "T": 19,
    }
    for numbers in by_kind.values():
        assert numbers == list(range(1, len(numbers) + 1))


def test_most_scenarios_have_a_test() -> None:
    covered = sum(bool(line.tests) for line in SCENARIOS)
    print(f"{covered} of {len(SCENARIOS)} scenarios have a test")
    assert covered >= SHARE * len(SCENARIOS)


def test_every_bug_has_a_test() -> None:
    assert BUGS
    assert all(line.tests for line in BUGS)
