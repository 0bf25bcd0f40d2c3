"""Makes a failing schedule as small as it gets while it still fails for the same reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.simulation.actions import Action, Send
from tests.simulation.broker_actions import Disturb
from tests.simulation.schedule import Schedule
from tests.simulation.setup import Setup

MOST_RUNS = 3000

Fails = Callable[[Schedule], bool]


def shrink(schedule: Schedule, fails: Fails, most_runs: int = MOST_RUNS) -> Schedule:
    """A smaller schedule that ``fails`` too; ``schedule`` itself when nothing can go."""
    budget = _Budget(fails, most_runs)
    while True:
        before = schedule
        schedule = _fewer_actions(schedule, budget)
        schedule = _simpler(schedule, budget, _plainer_setups)
        schedule = _simpler(schedule, budget, _smaller_actions)
        if schedule == before or not budget.left:
            return schedule


class _Budget:
    """Counts runs; says no to everything once they are used up."""

    def __init__(self, fails: Fails, left: int) -> None:
        self._fails = fails
        self.left = left

    def fails(self, schedule: Schedule) -> bool:
        if not self.left:
            return False
        self.left -= 1
        return self._fails(schedule)


def _fewer_actions(schedule: Schedule, budget: _Budget) -> Schedule:
    """Zeller's delta debugging: leave out ever smaller pieces of the list."""
    size = max(1, len(schedule.actions) // 2)
    while size:
        at = 0
        while at < len(schedule.actions):
            actions = schedule.actions[:at] + schedule.actions[at + size :]
            smaller = replace(schedule, actions=actions)
            if actions and budget.fails(smaller):
                schedule = smaller
            else:
                at += size
        size //= 2
    return schedule


def _simpler(
    schedule: Schedule, budget: _Budget, candidates: Callable[[Schedule], Iterator[Schedule]]
) -> Schedule:
    """Take the first candidate that still fails, until none does."""
    while True:
        found = next((c for c in candidates(schedule) if budget.fails(c)), None)
        if found is None:
            return schedule
        schedule = found


def _plainer_setups(schedule: Schedule) -> Iterator[Schedule]:
    plain = Setup()
    for field in fields(Setup):
        value = getattr(plain, field.name)
        if getattr(schedule.setup, field.name) != value:
            setup = replace(schedule.setup, **{field.name: value})
            yield replace(schedule, setup=setup)


def _smaller_actions(schedule: Schedule) -> Iterator[Schedule]:
    for place, action in enumerate(schedule.actions):
        for smaller in _smaller(action):
            actions = (*schedule.actions[:place], smaller, *schedule.actions[place + 1 :])
            yield replace(schedule, actions=actions)


def _smaller(action: Action) -> Iterator[Action]:
    if isinstance(action, Send):
        for records in {1, action.records // 2, action.records - 1}:
            if 0 < records < action.records:
                yield replace(action, records=records)
        if action.headers or action.echoes or action.raises:
            yield replace(action, headers=False, echoes=False, raises=False)
    elif isinstance(action, Disturb) and action.times > 1:
        yield replace(action, times=action.times - 1)
