"""How a whole batch becomes visible: tasks prepare their shards, then the driver commits them.

This is two-phase commit (Gray 1978). The commit decision is stored with the offset of a consumer
group. The protocol needs only ordinary transactions, without KIP-939. Why each step is where it is:

1. Each attempt has its own transactional id. So two attempts at a shard that run at the same time
   do not fence each other, and the one that Spark counts can be committed.
2. The marker of a shard is part of the transaction of its rows, in a group that only this attempt
   writes to. So the marker shows whether a transaction that has ended was committed.
3. The driver takes over the transactional id of the layout before it reads the decision. From then
   on no other driver can store a decision.
4. Before the decision, the driver fences and aborts all other open transactions of the job, and
   checks that every prepared transaction is still open. If one has ended, the batch fails, and none
   of its rows are visible.
5. The decision is stored before the first transaction is committed. From then on the batch is never
   rolled back. This driver or the next one completes it. Tasks write the shards again whose
   transactions have timed out.
6. A copy of a task may begin its transaction after step 4. So a task reads the decision once more
   after it has prepared its transaction, and the driver lists open transactions once more after it
   has committed the batch. A copy whose transaction is not in this list finds the decision.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kprod.exactly_once.errors import BatchIncomplete, BatchNotCommitted, ExactlyOnceError
from kprod.exactly_once.marker import Marker, is_done, was_won
from kprod.exactly_once.protocol import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Decision,
    decided,
    forgotten,
    go_forward,
    is_begun,
    marker_of,
    read_decision,
)
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import (
    CheckTime,
    CommitMarkers,
    Delivered,
    EndAll,
    FenceAll,
    Fenced,
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


@dataclass(frozen=True, slots=True)
class Ended:
    """How a batch has ended. If ``by_us`` is False, a stored decision was carried out.

    ``as_prepared``: the decision includes all transactions that these tasks have prepared.
    """

    committed: bool
    by_us: bool
    as_prepared: bool = True


Ending: TypeAlias = Generator[Step, Any, Ended]

GRACE = 2.0
"""Seconds within which Spark kills the remaining tasks of a job that has ended."""


def prepare(shard: Shard, attempt: int, patience: float) -> Protocol:
    """One attempt of a task: write the shard, and leave its transaction prepared.

    If the commit decision of the batch is already stored, the shard is committed instead, unless it
    is already committed. Raises Fenced, also if the decision was stored while this attempt wrote,
    and the errors of the functions in ``marker``.
    """
    decision = yield from read_decision(shard, wait=False)
    if decision is not None and is_done(decision.layout, shard):
        return (yield from go_forward(shard, decision, patience))
    if decision is None and (yield from is_begun(shard, (shard.number,))):
        decision = yield from read_decision(shard, wait=True)
        if decision is None or not is_done(decision.layout, shard):
            raise forgotten(shard)
        return (yield from go_forward(shard, decision, patience))
    own = replace(shard, attempt=attempt)
    yield TakeOver(own.transactional_id)
    written: Written = yield WriteRows(own.transactional_id)
    marker = marker_of(own, written)
    prepared: PreparedTransaction = yield Prepare(own.transactional_id, own.group, marker)
    decision = yield from _on_record(shard, (prepared,), wait=False)
    if decision is not None:
        # This attempt has read its rows, so only another one can go forward.
        yield EndAll((prepared,), committed=False)
        raise Fenced(f"{shard}: the batch was decided meanwhile, without this attempt")
    return Delivered(marker=marker, by_us=True, prepared=PreparedShard(own, prepared))


def commit(of: Shard, shards: int, prepared: Sequence[PreparedShard], patience: float) -> Ending:
    """The driver's part after all tasks have ended. Any driver may call it again.

    ``of`` is any shard of the batch. Raises BatchNotCommitted or TransactionTooSlow if no row is
    visible. Also raises BatchNotCommitted if another run has stored the decision: the rows of that
    run are visible, and they may be different. Raises BatchIncomplete if a transaction was lost
    after the decision was stored. Raises Fenced if another driver has taken over and does not
    decide.
    """
    mine = tuple(one.transaction for one in prepared)
    try:
        yield TakeOver(of.layout_id)
        decision = yield from _on_record(of, mine)
        if decision is None:
            yield from _make_sure(of, mine)
            markers = decided(of, shards, prepared)
            yield CommitMarkers(of.layout_id, tuple(markers))
            yield from _end(of, prepared, of.run)
            yield ReadMarker(of.layout_id)  # waits: from now on, copies find the decision
            yield from _fence_others(of, mine)
            return Ended(committed=True, by_us=True)
    except Fenced:
        decision = yield from _wait_for_decision(of, patience)
    yield from _finish(of, decision, mine)
    if decision.layout.run != of.run and _uncounted(decision, mine):
        raise BatchNotCommitted(
            f"another run has stored the commit decision of batch {of.batch} of {of.job_name!r}."
            " None of the rows of this run are visible. Start it again: its tasks compare their"
            " rows with those that are committed. Jobs that run at the same time need different"
            " job_ids"
        )
    return Ended(committed=True, by_us=False)


def abort(of: Shard, prepared: Sequence[PreparedShard]) -> Ending:
    """Abort the transactions of a failed batch, or complete the batch if it is already decided."""
    mine = tuple(one.transaction for one in prepared)
    yield TakeOver(of.layout_id)
    decision = yield from _on_record(of, mine)
    if decision is None:
        yield EndAll(mine, committed=False)
        return (yield from abandon(of))
    yield from _finish(of, decision, mine)
    return Ended(committed=True, by_us=False, as_prepared=not _uncounted(decision, mine))


def abandon(of: Shard) -> Ending:
    """Abort the transactions that tasks have left open. The job has ended or was cancelled.

    This is done twice, because tasks that are being killed continue for a moment, and may prepare a
    transaction after the first time. It also fences attempts that have taken over their id, but
    have not written anything yet.
    """
    for pause in (GRACE, 0.0):
        found: list[PreparedTransaction] = yield ListOpen(of.job_name, idle=True)
        yield FenceAll(tuple(one.transactional_id for one in found))
        yield Pause(pause)
    return Ended(committed=False, by_us=True)


def _on_record(
    of: Shard, mine: tuple[PreparedTransaction, ...], *, wait: bool = True
) -> Generator[Step, Any, Decision | None]:
    """Return the decision stored for this batch, if any. On an error, abort ``mine``."""
    try:
        found = yield from read_decision(of, wait=wait)
        is_decided = found is not None and is_done(found.layout, of)
    except ExactlyOnceError:
        yield EndAll(mine, committed=False)
        raise
    return found if is_decided else None


def _make_sure(of: Shard, mine: tuple[PreparedTransaction, ...]) -> Generator[Step, Any, None]:
    """Abort all other open transactions of the job, and check that ``mine`` can be committed."""
    opened = yield from _fence_others(of, mine)
    still = {one[:3] for one in opened}
    lost = [one.transactional_id for one in mine if one[:3] not in still]
    try:
        if lost:
            raise BatchNotCommitted(
                f"batch {of.batch} of {of.job_name!r} was not committed, and none of its rows are"
                f" visible: {len(lost)} of {len(mine)} transactions timed out or were aborted by"
                f" another run ({', '.join(lost[:3])}). Write the batch again. If transactions"
                " timed out, increase transaction_timeout_ms"
            )
        yield CheckTime(mine)
    except ExactlyOnceError:
        yield EndAll(mine, committed=False)
        raise


def _fence_others(
    of: Shard, mine: tuple[PreparedTransaction, ...]
) -> Generator[Step, Any, list[PreparedTransaction]]:
    """Abort all open transactions of the job except ``mine``. Return those that were open."""
    opened: list[PreparedTransaction] = yield ListOpen(of.job_name)
    known = {one[:3] for one in mine}
    yield FenceAll(tuple(one.transactional_id for one in opened if one[:3] not in known))
    return opened


def _finish(
    of: Shard, decision: Decision, mine: tuple[PreparedTransaction, ...]
) -> Generator[Step, Any, None]:
    """Carry out a stored decision, and abort those of ``mine`` that are not part of it."""
    yield EndAll(_uncounted(decision, mine), committed=False)
    if decision.is_atomic:
        yield from _end(of, list(decision.winners.values()), decision.layout.run)


def _uncounted(
    decision: Decision, mine: tuple[PreparedTransaction, ...]
) -> tuple[PreparedTransaction, ...]:
    counted = {one.transaction[:3] for one in decision.winners.values()}
    return tuple(one for one in mine if one[:3] not in counted)


def _end(
    of: Shard, winners: Sequence[PreparedShard], decided_by: str
) -> Generator[Step, Any, None]:
    done: Sequence[bool] = yield EndAll(tuple(one.transaction for one in winners), committed=True)
    missing: list[int] = []
    for one, committed in zip(winners, done, strict=True):
        if not committed:  # by us; the marker shows whether another driver has
            marker: Marker | None = yield ReadMarker(one.shard.group)
            # This run has decided, so the marker of another run is that of a later one, with its
            # own rows.
            is_of_later_run = (
                marker is not None and of.run == decided_by and marker.run != decided_by
            )
            if is_of_later_run or not was_won(marker, one.shard):
                missing.append(one.shard.number)
    if missing:
        visible = tuple(one.shard.number for one in winners if one.shard.number not in missing)
        raise BatchIncomplete(
            f"only a part of batch {of.batch} of {of.job_name!r} is visible: the transactions of"
            f" shards {_some(missing)} were aborted before they could be committed (another run"
            f" may have written them since), those of {_some(visible)} were committed. Write the"
            " batch again with the same name (restart the query, or the job with its job_id):"
            " shards that are already committed are compared and skipped, the others are written",
            visible,
            tuple(missing),
        )


def _wait_for_decision(of: Shard, patience: float) -> Generator[Step, Any, Decision]:
    """Wait for the decision of the driver that has taken over. Raises Fenced if there is none."""
    waited, pause = 0.0, FIRST_PAUSE
    while True:
        found = yield from read_decision(of, wait=False)
        if found is not None and is_done(found.layout, of):
            return found
        if waited >= patience:
            raise Fenced(f"batch {of.batch} of {of.job_name!r}: another driver has taken over")
        yield Pause(pause)
        waited += pause
        pause = min(2 * pause, LONGEST_PAUSE)


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:20]))
    return f"{shown} and {len(numbers) - 20} more" if len(numbers) > 20 else shown or "none"
