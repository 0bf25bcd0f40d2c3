"""Wrong versions about the names of jobs and runs: the right protocols, with other answers.

Most are what kprod did before the model had these situations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kprod.exactly_once.atomic import Ending, commit, prepare
from kprod.exactly_once.marker import Marker
from kprod.exactly_once.protocol import deliver
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import (
    CompareRows,
    EndAll,
    PreparedShard,
    Protocol,
    ReadMarker,
    Step,
    TakeOver,
    WriteRows,
)
from tests.spark.exactly_once.atomic_model import Version
from tests.spark.exactly_once.mutants import Change
from tests.spark.exactly_once.names_model import Rules, Situation


class LoserBelieves(Change):
    """An attempt that was fenced takes what is there for its own rows."""

    def ask(self, step: Step) -> Step | None:
        compares_late = isinstance(step, CompareRows) and self.has_asked(WriteRows)
        return None if compares_late else step


class NumbersOnly(Change):
    """As many rows of as many bytes are the same rows."""

    def ask(self, step: Step) -> Step:
        if isinstance(step, CompareRows):
            return CompareRows(replace(step.marker, digest=None))
        return step


class LooksAtNoShard(Change):
    """Without a layout nothing was begun, whatever shards are there."""

    def answer(self, step: Step, answer: Any) -> Any:
        is_layout = isinstance(step, ReadMarker) and step.group.endswith(".layout")
        early = isinstance(step, ReadMarker) and not step.wait and not self._owns_shard()
        return None if early and not is_layout else answer

    def _owns_shard(self) -> bool:
        taken = [step.transactional_id for step in self.asked if isinstance(step, TakeOver)]
        return any(not name.endswith(".layout") for name in taken)


class WinnersAreLost(Change):
    """What a decision names is written again, also where the coordinator knows its commit."""

    def answer(self, step: Step, answer: Any) -> Any:
        return (False,) * len(answer) if isinstance(step, EndAll) else answer


class AnyMarkerIsMine(Change):
    """A transaction that was lost, and its shard written by another run: the same rows, surely."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self._run = run

    def answer(self, step: Step, answer: Any) -> Any:
        return replace(answer, run=self._run) if isinstance(answer, Marker) else answer


def one_run_for_all(shard: Shard, patience: float) -> Protocol:
    """The run is that of the application, which two calls share."""
    return LoserBelieves().of(deliver(replace(shard, run="application"), patience))


def numbers_only(shard: Shard, patience: float) -> Protocol:
    return NumbersOnly().of(deliver(shard, patience))


def any_topic(shard: Shard, patience: float) -> Protocol:
    """Markers do not say which topic the rows went to."""
    return deliver(replace(shard, target=""), patience)


def looks_at_no_shard(shard: Shard, patience: float) -> Protocol:
    return LooksAtNoShard().of(deliver(shard, patience))


def atomic_numbers_only(shard: Shard, attempt: int, patience: float) -> Protocol:
    return NumbersOnly().of(prepare(shard, attempt, patience))


def atomic_any_topic(shard: Shard, attempt: int, patience: float) -> Protocol:
    return prepare(replace(shard, target=""), attempt, patience)


def atomic_looks_at_no_shard(shard: Shard, attempt: int, patience: float) -> Protocol:
    return LooksAtNoShard().of(prepare(shard, attempt, patience))


def winners_are_lost(shard: Shard, attempt: int, patience: float) -> Protocol:
    return WinnersAreLost().of(prepare(shard, attempt, patience))


def decided_by_anyone(
    of: Shard, shards: int, prepared: Sequence[PreparedShard], patience: float
) -> Ending:
    """A batch that is decided is this one's, whichever run has decided it."""
    return commit(replace(of, run="application"), shards, prepared, patience)


def any_marker_is_mine(
    of: Shard, shards: int, prepared: Sequence[PreparedShard], patience: float
) -> Ending:
    return AnyMarkerIsMine(of.run).of(commit(of, shards, prepared, patience))


def atomic_commit_of_any_topic(
    of: Shard, shards: int, prepared: Sequence[PreparedShard], patience: float
) -> Ending:
    return commit(replace(of, target=""), shards, prepared, patience)


@dataclass(frozen=True)
class NamesMutant:
    """What is wrong, and the situation and the first seed that show it."""

    rules: Rules
    situation: Situation
    seed: int


def _once(
    wrong: Callable[[Shard, float], Protocol], situation: Situation, seed: int
) -> NamesMutant:
    return NamesMutant(Rules(wrong.__name__, deliver=wrong), situation, seed)


def _atomic(situation: Situation, seed: int, name: str, **wrong: Any) -> NamesMutant:
    return NamesMutant(Rules(name, atomic=Version(name, **wrong)), situation, seed)


NAMES_MUTANTS = (
    _once(one_run_for_all, Situation.TWO_DRIVERS, 19),
    _once(one_run_for_all, Situation.CANCELLED, 68),
    _once(numbers_only, Situation.OTHER_ROWS, 26),
    _once(numbers_only, Situation.OLD_NAME, 3),
    _once(any_topic, Situation.SECOND_TOPIC, 0),
    _once(looks_at_no_shard, Situation.EXPIRED, 16),
    _atomic(Situation.OTHER_ROWS, 26, "atomic_numbers_only", prepare=atomic_numbers_only),
    _atomic(Situation.OLD_NAME, 0, "atomic_numbers_only", prepare=atomic_numbers_only),
    _atomic(
        Situation.SECOND_TOPIC,
        3,
        "atomic_any_topic",
        prepare=atomic_any_topic,
        commit=atomic_commit_of_any_topic,
    ),
    _atomic(Situation.EXPIRED, 4, "atomic_looks_at_no_shard", prepare=atomic_looks_at_no_shard),
    _atomic(Situation.EXPIRED, 2, "winners_are_lost", prepare=winners_are_lost),
    _atomic(Situation.TWO_DRIVERS, 189, "decided_by_anyone", commit=decided_by_anyone),
    _atomic(Situation.TWO_DRIVERS, 1, "any_marker_is_mine", commit=any_marker_is_mine),
)
