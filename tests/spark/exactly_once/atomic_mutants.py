"""Wrong versions of the protocol of atomic batches. The model finds each within a few seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kprod.admin import OpenTransaction
from kprod.cli.spark_batches import OffsetsOf, refusal
from kprod.exactly_once.atomic import Ended, Ending, abort, commit, prepare
from kprod.exactly_once.marker import Marker, is_done
from kprod.exactly_once.protocol import decided, deliver, lay_out, marker_of, read_decision
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import (
    CommitMarkers,
    Delivered,
    EndAll,
    FenceAll,
    ListOpen,
    Pause,
    Prepare,
    PreparedShard,
    Protocol,
    ReadMarker,
    Step,
    TakeOver,
    WriteRows,
    Written,
)
from kprod.transactional.two_phase_commit import PreparedTransaction
from tests.spark.exactly_once.atomic_model import Version
from tests.spark.exactly_once.model import LAYOUT
from tests.spark.exactly_once.mutants import Change

Shards = Sequence[PreparedShard]


def _transactions(prepared: Shards) -> tuple[PreparedTransaction, ...]:
    return tuple(one.transaction for one in prepared)


def decision_after_ends(of: Shard, shards: int, prepared: Shards, patience: float) -> Ending:
    """A driver that dies in between leaves a part of the batch visible, and no record of it."""
    yield TakeOver(of.layout_id)
    yield EndAll(_transactions(prepared), committed=True)
    yield CommitMarkers(of.layout_id, tuple(decided(of, shards, prepared)))
    return Ended(committed=True, by_us=True)


def no_decision(of: Shard, shards: int, prepared: Shards, patience: float) -> Ending:
    """The transactions are committed, and nothing is on record."""
    yield EndAll(_transactions(prepared), committed=True)
    return Ended(committed=True, by_us=True)


def record_not_read(of: Shard, shards: int, prepared: Shards, patience: float) -> Ending:
    """Each driver decides anew: two of them commit the same batch."""
    yield TakeOver(of.layout_id)
    yield CommitMarkers(of.layout_id, tuple(decided(of, shards, prepared)))
    yield EndAll(_transactions(prepared), committed=True)
    return Ended(committed=True, by_us=True)


def driver_not_fenced(of: Shard, shards: int, prepared: Shards, patience: float) -> Ending:
    """The record is written under a name of the run: another driver decides at the same time."""
    decision = yield from read_decision(of, wait=True)
    if decision is None or not is_done(decision.layout, of):
        name = f"{of.layout_id}/{of.run}"
        yield TakeOver(name)
        yield CommitMarkers(name, tuple(decided(of, shards, prepared)))
        yield EndAll(_transactions(prepared), committed=True)
    return Ended(committed=True, by_us=True)


def lost_passes_for_done(of: Shard, shards: int, prepared: Shards, patience: float) -> Ending:
    """A transaction that timed out is taken for one that somebody else has committed."""
    yield TakeOver(of.layout_id)
    decision = yield from read_decision(of, wait=True)
    if decision is None or not is_done(decision.layout, of):
        yield CommitMarkers(of.layout_id, tuple(decided(of, shards, prepared)))
        yield EndAll(_transactions(prepared), committed=True)
    return Ended(committed=True, by_us=True)


def everything_open_is_committed(
    of: Shard, shards: int, prepared: Shards, patience: float
) -> Ending:
    """What lost is committed with what won."""
    yield TakeOver(of.layout_id)
    decision = yield from read_decision(of, wait=True)
    if decision is not None and is_done(decision.layout, of):
        return Ended(committed=True, by_us=False)
    opened: list[PreparedTransaction] = yield ListOpen(of.job_name)
    yield CommitMarkers(of.layout_id, tuple(decided(of, shards, prepared)))
    yield EndAll(tuple(opened), committed=True)
    return Ended(committed=True, by_us=True)


class LosersAbortedByEpoch(Change):
    """A task that writes still goes on under its epoch, in a new transaction (protocol 1)."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: list[PreparedTransaction] = []

    def ask(self, step: Step) -> Step:
        if not isinstance(step, FenceAll):
            return step
        losers = [one for one in self._opened if one.transactional_id in step.transactional_ids]
        return EndAll(tuple(losers), committed=False)

    def answer(self, step: Step, answer: Any) -> Any:
        if isinstance(step, ListOpen):
            self._opened = answer
        return None if isinstance(step, FenceAll) else answer


def losers_aborted_by_epoch(of: Shard, shards: int, prepared: Shards, patience: float) -> Ending:
    return LosersAbortedByEpoch().of(commit(of, shards, prepared, patience))


def abort_after_decision(of: Shard, prepared: Shards) -> Ending:
    """What fails after the decision is taken back."""
    yield TakeOver(of.layout_id)
    opened: list[PreparedTransaction] = yield ListOpen(of.job_name)
    yield FenceAll(tuple(one.transactional_id for one in opened))
    yield CommitMarkers(
        of.layout_id, ((of.layout_id, Marker(batch=of.batch - 1, shards=of.shards)),)
    )
    return Ended(committed=False, by_us=True)


def aborted_once(of: Shard, prepared: Shards) -> Ending:
    """What is open is aborted, and the tasks that are being killed prepare one more transaction."""
    yield TakeOver(of.layout_id)
    yield EndAll(_transactions(prepared), committed=False)
    opened: list[PreparedTransaction] = yield ListOpen(of.job_name)
    yield FenceAll(tuple(one.transactional_id for one in opened))
    yield Pause(1.0)
    return Ended(committed=False, by_us=True)


def nothing_aborted_without_reports(of: Shard, prepared: Shards) -> Ending:
    """No task has reported yet, so nothing is taken for prepared."""
    if prepared:
        return (yield from abort(of, prepared))
    yield Pause(1.0)
    return Ended(committed=False, by_us=True)


def layout_of_others_believed(shard: Shard, patience: float) -> Protocol:
    """Whoever has laid out the batch, it has fenced what was prepared."""
    layout = yield from lay_out(shard)
    return (yield from deliver(replace(shard, run=layout.run), patience))


class NothingFenced(Change):
    """With ``exactly_once`` nobody fences what an earlier start has prepared."""

    def ask(self, step: Step) -> Step | None:
        return None if isinstance(step, FenceAll) else step


def prepared_stays(shard: Shard, patience: float) -> Protocol:
    return NothingFenced().of(deliver(shard, patience))


class LooksOnce(Change):
    """A copy that has prepared does not look whether the batch is decided meanwhile."""

    def answer(self, step: Step, answer: Any) -> Any:
        return None if isinstance(step, ReadMarker) and self.has_asked(Prepare) else answer


def copy_looks_once(shard: Shard, attempt: int, patience: float) -> Protocol:
    return LooksOnce().of(prepare(shard, attempt, patience))


class ListsOnce(Change):
    """What is opened between the list and the decision stays open."""

    def ask(self, step: Step) -> Step | None:
        is_late = isinstance(step, FenceAll) and self.has_asked(CommitMarkers)
        return None if is_late else step


def copies_listed_once(of: Shard, shards: int, prepared: Shards, patience: float) -> Ending:
    return ListsOnce().of(commit(of, shards, prepared, patience))


class MarkerElsewhere(Change):
    """What was committed is taken for lost, and written again."""

    def ask(self, step: Step) -> Step:
        if isinstance(step, Prepare):
            return replace(step, group=f"{step.group}.elsewhere")
        return step


def marker_outside(shard: Shard, attempt: int, patience: float) -> Protocol:
    return MarkerElsewhere().of(prepare(shard, attempt, patience))


def rewritten_without_looking(shard: Shard, attempt: int, patience: float) -> Protocol:
    """A batch that is decided is written again, whether or not its transaction was committed."""
    decision = yield from read_decision(shard, wait=False)
    if decision is not None and is_done(decision.layout, shard):
        own = replace(shard, attempt=attempt)
        yield TakeOver(own.transactional_id)
        written: Written = yield WriteRows(own.transactional_id)
        yield CommitMarkers(own.transactional_id, ((own.group, marker_of(own, written)),))
        return Delivered(marker=marker_of(own, written), by_us=True)
    return (yield from prepare(shard, attempt, patience))


def committed_by_tasks(shard: Shard, attempt: int, patience: float) -> Protocol:
    """Each task commits: a part of a batch is visible before the others are written."""
    own = replace(shard, attempt=attempt)
    yield TakeOver(own.transactional_id)
    written: Written = yield WriteRows(own.transactional_id)
    yield CommitMarkers(own.transactional_id, ((own.group, marker_of(own, written)),))
    return Delivered(marker=marker_of(own, written), by_us=True)


def anything_committed_by_hand(found: OpenTransaction, offsets_of: OffsetsOf) -> str | None:
    """An operator commits whatever is open: tasks that write still, and batches not decided."""
    return None


def committed_by_name(found: OpenTransaction, offsets_of: OffsetsOf) -> str | None:
    """An operator believes in the names on record: the ids may be open for the next batch."""
    for layout in offsets_of(LAYOUT).values():
        entries = (json.loads(layout.metadata).get("winners") or "").split(",")
        attempts = [entry.partition(":")[0] for entry in entries]
        if found.transactional_id in (f"p.j.{n}/{one}" for n, one in enumerate(attempts)):
            return None
    return refusal(found, offsets_of)


def aborted_by_hand_by_epoch(job_name: str) -> Ending:
    """An operator aborts by EndTxn: a task goes on under its epoch, without its first rows."""
    found: list[PreparedTransaction] = yield ListOpen(job_name)
    yield EndAll(tuple(found), committed=False)
    return Ended(committed=False, by_us=True)


def _commits(*wrong: object) -> list[Version]:
    return [Version(one.__name__, commit=one) for one in wrong]  # type: ignore[attr-defined, arg-type]


def _prepares(*wrong: object) -> list[Version]:
    return [Version(one.__name__, prepare=one) for one in wrong]  # type: ignore[attr-defined, arg-type]


ATOMIC_MUTANTS = (
    *_commits(
        decision_after_ends,
        no_decision,
        record_not_read,
        driver_not_fenced,
        lost_passes_for_done,
        everything_open_is_committed,
        losers_aborted_by_epoch,
        copies_listed_once,
    ),
    Version("abort_after_decision", abort=abort_after_decision),
    *_prepares(
        marker_outside,
        rewritten_without_looking,
        committed_by_tasks,
        copy_looks_once,
    ),
)

MUTANTS_OF_OPERATORS = (
    Version("anything_committed_by_hand", refuses=anything_committed_by_hand),
    Version("committed_by_name", refuses=committed_by_name),
    Version("aborted_by_hand_by_epoch", abort_by_hand=aborted_by_hand_by_epoch),
)
"""Found where an operator ends transactions."""

MUTANTS_OF_CHANGES = (
    Version("aborted_once", abort=aborted_once),
    Version("nothing_aborted_without_reports", abort=nothing_aborted_without_reports),
    Version("prepared_stays", deliver=prepared_stays),
    Version("layout_of_others_believed", deliver=layout_of_others_believed),
)
"""Found where drivers are cancelled and the delivery changes between two starts."""
