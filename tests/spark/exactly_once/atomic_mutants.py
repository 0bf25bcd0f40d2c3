"""Wrong versions of the protocol of atomic batches. The model finds each within a few seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kprod.spark.exactly_once.atomic import Ended, Ending, commit, prepare
from kprod.spark.exactly_once.marker import Marker, is_done
from kprod.spark.exactly_once.protocol import decided, marker_of, read_decision
from kprod.spark.exactly_once.shard import Shard
from kprod.spark.exactly_once.steps import (
    CommitMarker,
    CommitMarkers,
    Delivered,
    EndAll,
    FenceAll,
    ListOpen,
    Prepare,
    PreparedShard,
    Protocol,
    TakeOver,
    WriteRows,
    Written,
)
from kprod.transactional.two_phase_commit import PreparedTransaction
from tests.spark.exactly_once.atomic_model import Version

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


def losers_aborted_by_epoch(of: Shard, shards: int, prepared: Shards, patience: float) -> Ending:
    """A task that writes still goes on under its epoch, in a new transaction (protocol 1)."""
    ending = commit(of, shards, prepared, patience)
    answer = None
    opened: list[PreparedTransaction] = []
    while True:
        try:
            step = ending.send(answer)
        except StopIteration as end:
            ended: Ended = end.value
            return ended
        if isinstance(step, FenceAll):
            losers = [one for one in opened if one.transactional_id in step.transactional_ids]
            yield EndAll(tuple(losers), committed=False)
            answer = None
        else:
            answer = yield step
            if isinstance(step, ListOpen):
                opened = answer


def abort_after_decision(of: Shard, prepared: Shards) -> Ending:
    """What fails after the decision is taken back."""
    yield TakeOver(of.layout_id)
    opened: list[PreparedTransaction] = yield ListOpen(of.job_name)
    yield FenceAll(tuple(one.transactional_id for one in opened))
    yield CommitMarker(of.layout_id, of.layout_id, Marker(batch=of.batch - 1, shards=of.shards))
    return Ended(committed=False, by_us=True)


def marker_outside(shard: Shard, attempt: int, patience: float) -> Protocol:
    """The marker goes elsewhere: what was committed is taken for lost, and written again."""
    preparing = prepare(shard, attempt, patience)
    answer = None
    while True:
        try:
            step = preparing.send(answer)
        except StopIteration as end:
            delivered: Delivered = end.value
            return delivered
        if isinstance(step, Prepare):
            step = replace(step, group=f"{step.group}.elsewhere")
        answer = yield step


def rewritten_without_looking(shard: Shard, attempt: int, patience: float) -> Protocol:
    """A batch that is decided is written again, whether or not its transaction was committed."""
    decision = yield from read_decision(shard, wait=False)
    if decision is not None and is_done(decision.layout, shard):
        own = replace(shard, attempt=attempt)
        yield TakeOver(own.transactional_id)
        written: Written = yield WriteRows(own.transactional_id)
        yield CommitMarker(own.transactional_id, own.group, marker_of(own, written))
        return Delivered(marker=marker_of(own, written), by_us=True)
    return (yield from prepare(shard, attempt, patience))


def committed_by_tasks(shard: Shard, attempt: int, patience: float) -> Protocol:
    """Each task commits: a part of a batch is visible before the others are written."""
    own = replace(shard, attempt=attempt)
    yield TakeOver(own.transactional_id)
    written: Written = yield WriteRows(own.transactional_id)
    yield CommitMarker(own.transactional_id, own.group, marker_of(own, written))
    return Delivered(marker=marker_of(own, written), by_us=True)


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
    ),
    Version("abort_after_decision", abort=abort_after_decision),
    *_prepares(
        marker_outside,
        rewritten_without_looking,
        committed_by_tasks,
    ),
)
