"""Wrong versions of the protocol. The model finds each of them within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kprod.exactly_once.marker import Marker, is_done
from kprod.exactly_once.protocol import deliver, lay_out
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import (
    CommitMarkers,
    Delivered,
    Fenced,
    Protocol,
    ReadMarker,
    Step,
    TakeOver,
    WriteRows,
    Written,
)
from tests.spark.exactly_once.model import Deliver, Named

Result = TypeVar("Result")
Steps = Generator[Step, Any, Result]


@dataclass
class Change:
    """The right protocol, but for what ``ask`` and ``answer`` of a subclass do otherwise."""

    asked: list[Step] = field(default_factory=list)

    def ask(self, step: Step) -> Step | None:
        """The step to take in its place; None: it is not taken."""
        return step

    def answer(self, step: Step, answer: Any) -> Any:
        """What the protocol is told in the place of ``answer``."""
        return answer

    def of(self, protocol: Steps[Result]) -> Steps[Result]:
        """Follow it."""
        answer: Any = None
        fenced: Fenced | None = None
        while True:
            try:
                step = protocol.send(answer) if fenced is None else protocol.throw(fenced)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer, fenced = None, None
            instead = self.ask(step)
            if instead is not None:
                try:
                    answer = self.answer(step, (yield instead))
                except Fenced as lost:
                    fenced = lost
            self.asked.append(step)

    def has_asked(self, kind: type[Step]) -> bool:
        """Whether such a step was taken before."""
        return any(isinstance(step, kind) for step in self.asked)


def _marker(shard: Shard) -> Marker:
    return Marker(batch=shard.batch, shards=shard.shards, run=shard.run)


def _same(shard: Shard, _: int) -> Shard:
    return shard


@dataclass(frozen=True)
class Mutant:
    """``how`` the brokers are asked, who ``delivers``, and how shards are ``named``."""

    name: str
    delivers: Deliver = deliver
    named: Named = _same
    how: dict[str, bool] = field(default_factory=dict)


def _found_done(shard: Shard) -> Steps[Delivered | None]:
    """Take the shard over; what is told of it if its marker says that it is done."""
    yield TakeOver(shard.transactional_id)
    marker: Marker | None = yield ReadMarker(shard.group)
    return Delivered(marker=_marker(shard), by_us=False) if is_done(marker, shard) else None


def _then_write(shard: Shard) -> Protocol:
    written: Written = yield WriteRows(shard.transactional_id)
    marker = replace(_marker(shard), rows=written.rows)
    yield CommitMarkers(shard.transactional_id, ((shard.group, marker),))
    return Delivered(marker=marker, by_us=True)


def marker_outside(shard: Shard, patience: float) -> Protocol:
    """The marker follows in a transaction of its own."""
    yield from lay_out(shard)
    if (done := (yield from _found_done(shard))) is not None:
        return done
    written: Written = yield WriteRows(shard.transactional_id)
    elsewhere = f"{shard.group}.elsewhere"
    yield CommitMarkers(shard.transactional_id, ((elsewhere, _marker(shard)),))
    marker = replace(_marker(shard), rows=written.rows)
    yield CommitMarkers(shard.transactional_id, ((shard.group, marker),))
    return Delivered(marker=marker, by_us=True)


def marker_before_rows(shard: Shard, patience: float) -> Protocol:
    """The marker is committed first."""
    yield from lay_out(shard)
    if (done := (yield from _found_done(shard))) is not None:
        return done
    yield CommitMarkers(shard.transactional_id, ((shard.group, _marker(shard)),))
    yield WriteRows(shard.transactional_id)
    elsewhere = f"{shard.group}.elsewhere"
    yield CommitMarkers(shard.transactional_id, ((elsewhere, _marker(shard)),))
    return Delivered(marker=_marker(shard), by_us=True)


def read_before_taking_over(shard: Shard, patience: float) -> Protocol:
    """What another attempt commits between the two is not seen."""
    yield from lay_out(shard)
    marker: Marker | None = yield ReadMarker(shard.group)
    if is_done(marker, shard):
        return Delivered(marker=_marker(shard), by_us=False)
    yield TakeOver(shard.transactional_id)
    return (yield from _then_write(shard))


def no_marker(shard: Shard, patience: float) -> Protocol:
    """Fencing alone: an attempt that was committed is written again."""
    yield from lay_out(shard)
    yield TakeOver(shard.transactional_id)
    return (yield from _then_write(shard))


def count_ignored(shard: Shard, patience: float) -> Protocol:
    """Each shard looks at its own marker only, and at no number of shards."""
    yield TakeOver(shard.transactional_id)
    marker: Marker | None = yield ReadMarker(shard.group)
    if marker is not None and marker.batch >= shard.batch:
        return Delivered(marker=marker, by_us=False)
    return (yield from _then_write(shard))


def count_in_markers(shard: Shard, patience: float) -> Protocol:
    """The number is in each shard's marker, and in no layout: other shards do not see it."""
    if (done := (yield from _found_done(shard))) is not None:
        return done
    return (yield from _then_write(shard))


def layout_without_fencing(shard: Shard, patience: float) -> Protocol:
    """Two runs find no layout, and each puts its own on record."""
    layout: Marker | None = yield ReadMarker(shard.layout_id)
    if not is_done(layout, shard):
        name = f"{shard.layout_id}.{shard.run}.{shard.number}"
        yield TakeOver(name)
        yield CommitMarkers(name, ((shard.layout_id, _marker(shard)),))
    if (done := (yield from _found_done(shard))) is not None:
        return done
    return (yield from _then_write(shard))


def loser_passes_for_done(shard: Shard, patience: float) -> Protocol:
    """Who was fenced takes it for granted that the other one commits."""
    yield from lay_out(shard)
    try:
        return (yield from _found_done(shard)) or (yield from _then_write(shard))
    except Fenced:
        return Delivered(marker=_marker(shard), by_us=False)


def stale_passes_for_done(shard: Shard, patience: float) -> Protocol:
    """The marker of the batch before is enough."""
    yield from lay_out(shard)
    yield TakeOver(shard.transactional_id)
    marker: Marker | None = yield ReadMarker(shard.group)
    if marker is not None and marker.offset >= shard.batch:
        return Delivered(marker=marker, by_us=False)
    return (yield from _then_write(shard))


class _ByAttempt(Shard):
    """The transactional id has the attempt in it, the group has not."""

    __slots__ = ()

    @property
    def transactional_id(self) -> str:
        return f"{self.prefix}.{self.job}.{self.number}.{self.topic}"

    @property
    def group(self) -> str:
        return f"{self.prefix}.{self.job}.{self.number}"


def id_by_attempt(shard: Shard, attempt: int) -> Shard:
    """No attempt fences another one."""
    values: dict[str, Any] = {
        name: getattr(shard, name) for name in ("prefix", "job", "number", "batch", "shards", "run")
    }
    return _ByAttempt(**values, topic=str(attempt))


def job_by_run(shard: Shard, attempt: int) -> Shard:
    """Each start of the query goes by another name."""
    return replace(shard, job=f"{shard.job}.{shard.run}")


def _wrong(delivers: Callable[[Shard, float], Protocol]) -> Mutant:
    return Mutant(delivers.__name__, delivers)


MUTANTS = (
    *map(
        _wrong,
        (
            marker_outside,
            marker_before_rows,
            read_before_taking_over,
            no_marker,
            count_ignored,
            count_in_markers,
            layout_without_fencing,
            loser_passes_for_done,
            stale_passes_for_done,
        ),
    ),
    Mutant("id_by_attempt", named=id_by_attempt),
    Mutant("job_by_run", named=job_by_run),
    Mutant("unstable_reads", how={"stable": False}),
)
