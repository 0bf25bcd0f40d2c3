"""How one attempt delivers its shard: layout, fencing, marker, rows, in this order.

After Beam's KafkaExactlyOnceSink (the state of a shard in a group's offset, inside the transaction)
and KIP-447 (offsets that no open transaction can change). Why each step is where it is:

1. The layout of the batch is on record before anything of the batch is, and does not change. So no
   two attempts at one batch write with different numbers of shards.
2. TakeOver fences every other attempt at the shard. What they had committed is committed for good
   then, and nothing more will be.
3. The marker is read after that. Read before, it could miss what another attempt commits meanwhile.
4. The marker is in the transaction of the rows: both are there, or neither.

The decision about an atomic batch is its layout, written last instead of first: for either mode a
layout on record says that the batch goes forward, and with how many shards.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kprod.spark.errors import MarkerError, RowsChanged
from kprod.spark.exactly_once.marker import Marker, is_done, is_laid_out
from kprod.spark.exactly_once.shard import Shard
from kprod.spark.exactly_once.steps import (
    CommitMarker,
    CompareRows,
    Delivered,
    EndAll,
    Fenced,
    Pause,
    PreparedShard,
    Protocol,
    ReadMarker,
    Step,
    TakeOver,
    WriteRows,
    Written,
)
from kprod.transactional.two_phase_commit import PreparedTransaction

FIRST_PAUSE = 0.015
LONGEST_PAUSE = 1.0
LOOKS = 3
"""At a layout that is not there, of a shard that is not the first: they would fence each other."""
LONGEST_LOOK = 30.0
"""Seconds between two of them, when tasks have fenced each other again and again."""


def deliver(shard: Shard, patience: float) -> Protocol:
    """Write the shard unless it is written; ends when it is, by whichever attempt.

    An attempt that was fenced waits ``patience`` seconds for the one that has fenced it: failing at
    once, it would be started again, and fence the other in its turn. Raises Fenced after that, or
    when another run has written the shard, and what ``marker`` raises.
    """
    if shard.shards is None:
        return (yield from write_once(shard, patience))
    layout = yield from lay_out(shard)
    delivered: Delivered
    if layout.winners is None:
        delivered = yield from write_once(shard, patience)
    else:  # the batch was begun with delivery="atomic", and is decided
        decision = yield from read_decision(shard, wait=True)
        if decision is None or not is_done(decision.layout, shard):
            raise AssertionError(f"{shard}: its layout was on record, and is not any more")
        delivered = yield from go_forward(shard, decision, patience)
    return replace(delivered, rewritten=delivered.by_us and layout.run != shard.run)


def write_once(shard: Shard, patience: float) -> Protocol:
    """Take over the shard, and write it unless its marker says that it is written."""
    try:
        yield TakeOver(shard.transactional_id)
        marker: Marker | None = yield ReadMarker(shard.group)
        if marker is not None and is_done(marker, shard):
            if shard.shards is not None:
                yield CompareRows(marker)
            return Delivered(marker=marker, by_us=False)
        written: Written = yield WriteRows(shard.transactional_id)
        marker = marker_of(shard, written)
        yield CommitMarker(shard.transactional_id, shard.group, marker)
    except Fenced as fenced:
        return (yield from _wait_for_winner(shard, patience, fenced))
    return Delivered(marker=marker, by_us=True)


def go_forward(shard: Shard, decision: Decision, patience: float) -> Protocol:
    """The batch is decided: commit what was prepared of the shard, or write it if that was lost."""
    if not decision.is_atomic:
        return (yield from write_once(shard, patience))
    winner = decision.winners.get(shard.number)
    if winner is None:
        raise RowsChanged(
            f"{shard} had no rows when its batch was decided, and has some now: nothing was"
            " written. Its rows are not the same when Spark computes them again"
        )
    yield EndAll((winner.transaction,), committed=True)  # its marker tells what came of it
    delivered: Delivered = yield from write_once(
        replace(shard, attempt=winner.shard.attempt), patience
    )
    return replace(delivered, rewritten=delivered.by_us)


def lay_out(shard: Shard) -> Generator[Step, Any, Marker]:
    """Record the number of shards unless it is recorded; return the recorded layout.

    The layout is a register that is written once: a shard that has taken over its id reads it
    first, and can be fenced until its own value is written.
    """
    pause = FIRST_PAUSE
    looks = 0 if shard.number == 0 else LOOKS
    while True:
        # No wait for a begun transaction: the shard that takes over the id next ends it.
        layout: Marker | None = yield ReadMarker(shard.layout_id, wait=False)
        if layout is not None and is_laid_out(layout, shard):
            return layout
        if looks:  # the first shard does it, most likely, and is quick
            looks -= 1
            yield Pause(pause)
            pause = min(2 * pause, LONGEST_LOOK)
            continue
        try:
            yield TakeOver(shard.layout_id)
            layout = yield ReadMarker(shard.layout_id)
            if layout is not None and is_laid_out(layout, shard):
                return layout
            fresh = Marker(batch=shard.batch, shards=shard.shards, run=shard.run)
            yield CommitMarker(shard.layout_id, shard.layout_id, fresh)
        except Fenced:
            # By another task of the batch, which has four more steps to take. Taking over again
            # before it has taken them fences it in its turn, and on a slow cluster that would go on
            # for ever: so the looks come first again, each pause twice as long as the one before.
            looks = LOOKS
        else:
            return fresh


def _wait_for_winner(shard: Shard, patience: float, fenced: Fenced) -> Protocol:
    waited, pause = 0.0, FIRST_PAUSE
    while True:
        marker: Marker | None = yield ReadMarker(shard.group, wait=False)
        if marker is not None and is_done(marker, shard):
            if marker.run != shard.run:
                # Its rows may be others, and this attempt has consumed a part of its own: the next
                # one finds the marker before it reads any, and compares all of them.
                raise Fenced(
                    f"{shard}: another run of the job has taken over and written it, with"
                    f" {marker.rows:,} rows of {marker.bytes:,} bytes; the next attempt compares"
                    " its rows with those. Jobs that run at the same time need a job_id each"
                )
            return Delivered(marker=marker, by_us=False)
        if fenced.too_slow is not None:
            # Most likely there is no other attempt. If there is one, this failure does no harm:
            # Spark starts none beside it, and a third one would find what the other has written.
            raise fenced
        if waited >= patience:
            raise Fenced(
                f"{shard}: another attempt has taken over, or another job of this name, and has not"
                " written it; or its transaction has timed out. Jobs that run at the same time need"
                " a job_id each, whichever topics they write to"
            )
        yield Pause(pause)
        waited += pause
        pause = min(2 * pause, LONGEST_PAUSE)


def marker_of(shard: Shard, written: Written) -> Marker:
    """The marker that says that the shard is done."""
    return Marker(
        batch=shard.batch,
        shards=shard.shards,
        rows=written.rows,
        bytes=written.bytes,
        run=shard.run,
        ranges=written.ranges,
    )


PIECE_BYTES = 3_000
"""Bytes for winners in one group's metadata, beside the rest of a marker: brokers take 4,096."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The record of a batch. ``winners`` has the shards with rows, by number. Immutable.

    ``layout``: the first marker, of the group that is named ``Shard.layout_id``. A layout that
    ``delivery="exactly_once"`` has written names no winners: ``is_atomic`` is False.
    """

    layout: Marker
    winners: Mapping[int, PreparedShard]

    @property
    def is_atomic(self) -> bool:
        return self.layout.winners is not None


def decided(of: Shard, shards: int, prepared: Sequence[PreparedShard]) -> list[tuple[str, Marker]]:
    """The decision that ``prepared`` counts, as markers by group; all go into one transaction."""
    by_number = {one.shard.number: one for one in prepared}
    text = ",".join(_entry(by_number.get(number)) for number in range(shards))
    pieces = [text[at : at + PIECE_BYTES] for at in range(0, len(text), PIECE_BYTES)] or [""]
    return [
        (
            _group(of, number),
            Marker(batch=of.batch, shards=shards, run=of.run, winners=piece, pieces=len(pieces)),
        )
        for number, piece in enumerate(pieces)
    ]


def read_decision(of: Shard, *, wait: bool) -> Generator[Step, Any, Decision | None]:
    """The decision on record, about any batch; ``wait`` as in ``ReadMarker``.

    Raises MarkerError for a decision that is not whole.
    """
    layout: Marker | None = yield ReadMarker(of.layout_id, wait=wait)
    if layout is None or layout.winners is None or layout.batch != of.batch:
        return None if layout is None else Decision(layout, {})
    text = layout.winners
    for number in range(1, layout.pieces):
        # In the transaction of the first: what is not told yet will be.
        piece: Marker | None = yield ReadMarker(_group(of, number))
        if piece is None or piece.batch < layout.batch or piece.winners is None:
            raise MarkerError(f"{of}: piece {number} of its decision is not there")
        if piece.batch > layout.batch:  # another run goes on meanwhile
            return Decision(piece, {})
        text += piece.winners
    return Decision(layout, dict(_winners(of, text)))


def _group(of: Shard, number: int) -> str:
    return f"{of.layout_id}/{number}" if number else of.layout_id


def _entry(one: PreparedShard | None) -> str:
    if one is None:
        return ""
    found = one.transaction
    level = "" if found.level is None else found.level
    return f"{one.shard.attempt}:{found.producer_id}:{found.epoch}:{level}"


def _winners(of: Shard, text: str) -> Any:
    for number, entry in enumerate(text.split(",")):
        if entry:
            attempt, producer_id, epoch, level = entry.split(":")
            shard = replace(of, number=number, attempt=int(attempt))
            transaction = PreparedTransaction(
                shard.transactional_id,
                int(producer_id),
                int(epoch),
                level=int(level) if level else None,
            )
            yield number, PreparedShard(shard, transaction)
