"""Runs many seeds and counts their results; reduces a failing schedule."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace

from kprod.errors import ConfigError
from tests.simulation.actions import Schedule, Send
from tests.simulation.draw import draw
from tests.simulation.setup import Setup
from tests.simulation.surroundings import Outcome
from tests.simulation.world import run


@dataclass(slots=True)
class Tally:
    """``counts`` what happened; ``failures`` maps a seed to its violations."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, list[str]] = field(default_factory=dict)


def attempt(seed: int) -> Outcome:
    return run(draw(seed))


def campaign(seeds: Iterable[int], attempt: Callable[[int], Outcome] = attempt) -> Tally:
    """Run the seeds; without the cyclic garbage collector, whose work is a sixth of the time."""
    tally = Tally()
    collecting = gc.isenabled()
    gc.disable()
    try:
        for seed in seeds:
            outcome = attempt(seed)
            tally.counts.update(outcome.counts, seeds=1)
            if outcome.violations:
                tally.failures[seed] = outcome.violations
    finally:
        if collecting:
            gc.enable()
            gc.collect()
    return tally


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
    for option in fields(Setup):
        value = getattr(plain, option.name)
        if getattr(schedule.setup, option.name) != value:
            yield replace(schedule, setup=replace(schedule.setup, **{option.name: value}))
    for at, action in enumerate(actions):
        if isinstance(action, Send) and action.records > 1:
            fewer = replace(action, records=action.records // 2)
            yield replace(schedule, actions=(*actions[:at], fewer, *actions[at + 1 :]))
