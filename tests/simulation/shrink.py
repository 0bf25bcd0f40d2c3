"""Reduces a failing schedule while it still fails for the same reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from kprod.errors import ConfigError
from tests.simulation.actions import Schedule, Send
from tests.simulation.draw import draw
from tests.simulation.setup import Setup
from tests.simulation.world import run


def explain(seed: int, most_runs: int = 1000) -> str:
    """The smallest schedule found that fails like ``seed``, and how it fails."""
    smallest, kinds = draw(seed), _kinds(draw(seed))
    found = True
    while found:
        found = False
        for candidate in _smaller(smallest):
            most_runs -= 1
            found = not kinds.isdisjoint(_kinds(candidate)) and most_runs > 0
            if found or most_runs <= 0:
                smallest = candidate if found else smallest
                break
    how = "".join(f"# {violation}\n" for violation in run(smallest).violations)
    return f"# seed {seed}\n{how}assert not run({smallest!r}).violations"


def _kinds(schedule: Schedule) -> set[str]:
    try:
        return {violation.partition(":")[0] for violation in run(schedule).violations}
    except ConfigError:  # invalid options
        return set()


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """With fewer actions (Zeller's delta debugging), a plainer setup, or fewer records."""
    actions, plain = schedule.actions, Setup()
    size = len(actions) // 2
    while size:
        for at in range(0, len(actions), size):
            yield replace(schedule, actions=actions[:at] + actions[at + size :])
        size //= 2
    for field in fields(Setup):
        value = getattr(plain, field.name)
        if getattr(schedule.setup, field.name) != value:
            yield replace(schedule, setup=replace(schedule.setup, **{field.name: value}))
    for at, action in enumerate(actions):
        if isinstance(action, Send) and action.records > 1:
            fewer = replace(action, records=action.records // 2)
            yield replace(schedule, actions=(*actions[:at], fewer, *actions[at + 1 :]))
