"""Many seeds, what they came to, and a small schedule for each one that failed."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, field

from kprod.errors import ConfigError
from kprod.sender.assembly import assemble
from tests.simulation.draw import draw
from tests.simulation.schedule import Schedule
from tests.simulation.shrink import MOST_RUNS, shrink
from tests.simulation.world import Assemble, Outcome, World


@dataclass(slots=True)
class Tally:
    """What a number of seeds came to; ``failures`` maps a seed to its violations."""

    seeds: int = 0
    actions: int = 0
    requests: int = 0
    acknowledged: int = 0
    failed: int = 0
    maybe: int = 0
    refused: int = 0
    seconds: float = 0.0
    failures: dict[int, list[str]] = field(default_factory=dict)

    def add(self, schedule: Schedule, outcome: Outcome) -> None:
        self.seeds += 1
        self.actions += len(schedule.actions)
        self.requests += outcome.requests
        self.acknowledged += outcome.acknowledged
        self.failed += outcome.failed
        self.maybe += outcome.maybe
        self.refused += outcome.refused
        self.seconds += outcome.seconds
        if outcome.violations:
            self.failures[schedule.seed] = outcome.violations

    def merge(self, other: Tally) -> None:
        for name in ("seeds", "actions", "requests", "acknowledged", "failed", "maybe"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.refused += other.refused
        self.seconds += other.seconds
        self.failures |= other.failures

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, {self.actions} actions, {self.seconds:.0f} simulated seconds,"
            f" {self.requests} produce requests; records: {self.acknowledged} acknowledged,"
            f" {self.failed} failed ({self.maybe} MAYBE), {self.refused} refused;"
            f" {len(self.failures)} seeds failed"
        )


def attempt(schedule: Schedule, make: Assemble = assemble) -> Outcome:
    """Run a schedule; an exception that escapes from the producer is a violation, too."""
    world = World(schedule, make)
    try:
        return world.run()
    except Exception as error:
        world.app.history.violated("I14", f"{type(error).__name__} escaped: {error}")
        return world.outcome()


def campaign(seeds: Iterable[int], make: Assemble = assemble) -> Tally:
    """Run the seeds. Without looking for cycles of garbage meanwhile, a sixth of the time."""
    tally = Tally()
    collecting = gc.isenabled()
    gc.disable()
    try:
        for seed in seeds:
            schedule = draw(seed)
            tally.add(schedule, attempt(schedule, make))
    finally:
        if collecting:
            gc.enable()
            gc.collect()
    return tally


def explain(seed: int, make: Assemble = assemble, most_runs: int = MOST_RUNS) -> str:
    """A pytest with the smallest schedule found that fails like ``seed``, and how it fails."""
    schedule = draw(seed)
    kinds = {_kind(violation) for violation in attempt(schedule, make).violations[:1]}

    def fails(candidate: Schedule) -> bool:
        try:
            violations = attempt(candidate, make).violations
        except ConfigError:  # a setup that no producer accepts
            return False
        return not kinds.isdisjoint(map(_kind, violations))

    smallest = shrink(schedule, fails, most_runs)
    violations = attempt(smallest, make).violations
    return "\n".join(
        [f"# seed {seed}", *(f"# {v}" for v in violations), smallest.as_test(f"seed_{seed}")]
    )


def _kind(violation: str) -> str:
    return violation.partition(":")[0]
