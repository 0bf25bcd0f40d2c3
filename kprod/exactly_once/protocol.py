"""How one attempt delivers its shard, in four steps: layout, fencing, marker, rows.

Models are Beam's KafkaExactlyOnceSink (the state of a shard is a group's offset, committed in the
transaction) and KIP-447 (offsets that no open transaction can change). Why each step is where it
is:

1. The layout of a batch is its number of shards. It is stored before any row of the batch, and does
   not change. So no two attempts at one batch write with different numbers of shards.
2. TakeOver fences every other attempt at the shard. From then on the other attempts can commit
   nothing. What they committed before stays.
3. The marker is read after TakeOver. If it were read earlier, another attempt could still commit
   after the read.
4. The marker is in the transaction of the rows: both are committed, or neither is.

In an atomic batch, the layout is also the commit decision, and is stored last instead of first. So
in both modes, a stored layout means that the batch has to be completed, with this number of shards.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kprod.errors import InvalidRecordError
from kprod.exactly_once.errors import MarkerError, RowsChanged
from kprod.exactly_once.marker import Marker, is_done, was_won
from kprod.exactly_once.shard import OF_ATTEMPT, Shard
from kprod.exactly_once.steps import (
    CommitMarkers,
    CompareRows,
    Delivered,
    EndAll,
    FenceAll,
    Fenced,
    ListOpen,
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
CHECKS = 10
"""How often a shard other than the first checks for the layout before it takes over the layout's
id. Otherwise, the shards would fence each other."""
FIRST_INTERVAL = 0.01
"""Seconds between these checks. The first shard needs about 60 ms on a cluster that is near, in the
first batch of a job with 8 shards."""
INTERVAL_PER_SHARD = 0.0005
"""Additional seconds in the first batch of a job: there, the first shard makes two requests for
each shard (``is_begun``), of about 1 ms each."""
LONGEST_INTERVAL = 10.0
"""Maximum seconds between two checks, after tasks have fenced each other repeatedly."""


def deliver(shard: Shard, patience: float) -> Protocol:
    """Write the shard, or wait until another attempt has written it.

    A fenced attempt waits ``patience`` seconds for the attempt that has fenced it, and then raises
    Fenced. If the fenced attempt failed at once, Spark would start a new one, which would fence the
    other attempt. Also raises Fenced if another run has written the shard, and the errors of the
    functions in ``marker``.
    """
    if shard.shards is None:
        return (yield from write_once(shard, patience))
    layout = yield from lay_out(shard)
    decision = Decision(layout, {})
    if decision.is_atomic:  # the batch was begun with delivery="atomic"
        found = yield from read_decision(shard, wait=True)
        if found is None or not is_done(found.layout, shard):
            raise forgotten(shard)
        decision = found
    if (layout.run, layout.start) != (shard.run, shard.start):
        yield from _fence_prepared(shard, decision.winners.values())
    delivered: Delivered = yield from go_forward(shard, decision, patience)
    return replace(delivered, rewritten=delivered.by_us and layout.run != shard.run)


def write_once(shard: Shard, patience: float) -> Protocol:
    """Take over the shard, and write it unless its marker says that it is already written."""
    try:
        yield TakeOver(shard.transactional_id)
        marker: Marker | None = yield ReadMarker(shard.group)
        if marker is not None and is_done(marker, shard):
            yield CompareRows(marker)
            return Delivered(marker=marker, by_us=False)
        written: Written = yield WriteRows(shard.transactional_id)
        marker = marker_of(shard, written)
        yield CommitMarkers(shard.transactional_id, ((shard.group, marker),))
    except Fenced as fenced:
        marker = yield from _wait_for_winner(shard, patience, fenced)
        yield CompareRows(marker)
        return Delivered(marker=marker, by_us=False)
    return Delivered(marker=marker, by_us=True)


def go_forward(shard: Shard, decision: Decision, patience: float) -> Protocol:
    """Deliver a shard of a decided batch: commit its transaction, or write it if that was lost."""
    if not decision.is_atomic:
        return (yield from write_once(shard, patience))
    winner = decision.winners.get(shard.number)
    if winner is None:
        raise RowsChanged(
            f"{shard} had no rows when the commit decision of its batch was stored, and has rows"
            " now. Nothing was written. The rows differ when Spark computes them again"
        )
    own = replace(shard, attempt=winner.shard.attempt)
    (committed,) = yield EndAll((winner.transaction,), committed=True)
    if committed:  # now, or before: either way its marker was there
        marker: Marker | None = yield ReadMarker(own.group)
        if not was_won(marker, own):
            raise forgotten(own)
    delivered: Delivered = yield from write_once(own, patience)
    return replace(delivered, rewritten=delivered.by_us)


def lay_out(shard: Shard) -> Generator[Step, Any, Marker]:
    """Store the number of shards unless it is already stored; return the stored layout.

    The layout is written only once. A shard takes over the layout's id before it reads the layout.
    Another shard may then take over the id in turn. This fences the first shard, unless the first
    shard has already committed a layout.
    """
    pause = FIRST_INTERVAL
    checks = 0 if shard.number == 0 else CHECKS
    begun: bool | None = None
    while True:
        # No wait for a begun transaction: the shard that takes over the id next ends it.
        layout: Marker | None = yield ReadMarker(shard.layout_id, wait=False)
        if layout is not None and is_done(layout, shard):
            return layout
        if checks:  # the first shard does it, most likely, and is quick
            checks -= 1
            first_batch = INTERVAL_PER_SHARD * (shard.shards or 0) if layout is None else 0.0
            yield Pause(pause + first_batch)
            continue
        if layout is None and begun is None:  # before taking over: it may be many questions
            begun = yield from is_begun(shard, range(shard.shards or 0))
        try:
            yield TakeOver(shard.layout_id)
            layout = yield ReadMarker(shard.layout_id)
            if layout is None and begun:
                raise forgotten(shard)
            if layout is not None and is_done(layout, shard):
                return layout
            if layout is None or not shard.start or layout.start != shard.start:
                yield from _fence_prepared(shard, ())
            fresh = Marker(
                batch=shard.batch,
                shards=shard.shards,
                topic=shard.target,
                run=shard.run,
                start=shard.start,
            )
            yield CommitMarkers(shard.layout_id, ((shard.layout_id, fresh),))
        except Fenced:
            # By another task of the batch, which has four more steps to take. Taking over again
            # before it has taken them fences it in its turn, and on a slow cluster that would go on
            # for ever: so the checks come first again, with pauses that are eight times as long.
            checks, pause = CHECKS, min(8 * pause, LONGEST_INTERVAL)
        else:
            return fresh


def _fence_prepared(shard: Shard, winners: Iterable[PreparedShard]) -> Generator[Step, Any, None]:
    """Abort transactions that an earlier start prepared (``delivery="atomic"``) and never decided.

    Otherwise, consumers of committed records would wait for these transactions. In the first batch
    of a start, the task that lays out the batch calls this before it commits the layout. So the
    transactions are aborted before any shard is written. Every task that finds the layout of
    another start also calls this: an ``atomic`` task may have written after the other start had
    listed the open transactions, but before the other start committed its layout. The ``winners``
    of a decision are not aborted.
    """
    found: list[PreparedTransaction] = yield ListOpen(shard.job_name, if_possible=True)
    counted = {one.transaction.transactional_id for one in winners}
    names = [one.transactional_id for one in found]
    lost = (name for name in names if OF_ATTEMPT.fullmatch(name) and name not in counted)
    yield FenceAll(tuple(lost))


def is_begun(shard: Shard, numbers: Iterable[int]) -> Generator[Step, Any, bool]:
    """Whether one of these shards of the batch was written, in either mode of delivery.

    Brokers delete the offset of each group separately, the oldest first, and a layout is the oldest
    offset of its batch. So if a shard was written and the layout is missing, some offsets have
    expired. But the layout may have been stored after the caller looked for it, so the caller has
    to read it again.
    """
    for number in numbers:
        for attempt in (None, 0):
            one = replace(shard, number=number, attempt=attempt)
            # Without waiting: what is open belongs to an attempt, and the next one will end it.
            marker: Marker | None = yield ReadMarker(one.group, wait=False)
            if was_won(marker, one):
                return True
    return False


def forgotten(shard: Shard) -> MarkerError:
    """The error for a batch of which some committed offsets exist, and others have expired."""
    return MarkerError(
        f"batch {shard.batch} of {shard.job_name!r} was started before, but some committed offsets"
        f" of the groups {shard.job_name}.* have expired. Nothing was written. Brokers delete"
        " offsets one by one, after offsets.retention.minutes, so kprod does not know which shards"
        " were written. Check the topic. To write all rows (again), use a different job_id"
    )


def _wait_for_winner(shard: Shard, patience: float, fenced: Fenced) -> Generator[Step, Any, Marker]:
    """Wait for the marker of another attempt of the same call. Raises Fenced if there is none."""
    waited, pause = 0.0, FIRST_PAUSE
    while True:
        marker: Marker | None = yield ReadMarker(shard.group, wait=False)
        if marker is not None and is_done(marker, shard):
            if marker.run != shard.run:
                # Its rows may be others, and this attempt cannot tell how many bytes it would have
                # had: the next one finds the marker before it reads any, and compares all of them.
                raise Fenced(
                    f"{shard}: another run of the job has taken over and written the shard, with"
                    f" {marker.rows:,} rows of {marker.bytes:,} bytes. The next attempt compares"
                    " its rows with those. Jobs that run at the same time need different job_ids"
                )
            return marker
        if fenced.too_slow is not None:
            # Most likely there is no other attempt. If there is one, this failure does no harm:
            # Spark starts none beside it, and a third one would find what the other has written.
            raise fenced
        if waited >= patience:
            raise Fenced(
                f"{shard}: another attempt, or another job of this name, has taken over and has not"
                " written the shard; or the transaction of this attempt has timed out. Jobs that"
                " run at the same time need different job_ids, even if they write to different"
                " topics"
            )
        yield Pause(pause)
        waited += pause
        pause = min(2 * pause, LONGEST_PAUSE)


def marker_of(shard: Shard, written: Written) -> Marker:
    """The marker that records that the shard is done."""
    return Marker(
        batch=shard.batch,
        shards=shard.shards,
        rows=written.rows,
        bytes=written.bytes,
        digest=written.digest,
        topic=shard.target,
        run=shard.run,
        ranges=written.ranges,
    )


PIECE_BYTES = 3_000
"""Maximum bytes of ``winners`` in one marker, so that the marker does not exceed 4,096 bytes."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The stored layout or decision of a batch. ``winners`` has the shards with rows, by number.

    ``layout`` is the first marker, in the group ``Shard.layout_id``. A layout of
    ``delivery="exactly_once"`` has no winners, and ``is_atomic`` is False. Immutable.
    """

    layout: Marker
    winners: Mapping[int, PreparedShard]

    @property
    def is_atomic(self) -> bool:
        return self.layout.winners is not None


def decided(of: Shard, shards: int, prepared: Sequence[PreparedShard]) -> list[tuple[str, Marker]]:
    """The decision to commit ``prepared``, as groups with their markers, for one transaction."""
    by_number = {one.shard.number: one for one in prepared}
    text = ",".join(_entry(by_number.get(number)) for number in range(shards))
    pieces = [text[at : at + PIECE_BYTES] for at in range(0, len(text), PIECE_BYTES)] or [""]
    return [
        (
            _group(of, number),
            Marker(
                batch=of.batch,
                shards=shards,
                topic=of.target,
                run=of.run,
                winners=piece,
                pieces=len(pieces),
            ),
        )
        for number, piece in enumerate(pieces)
    ]


def read_decision(of: Shard, *, wait: bool) -> Generator[Step, Any, Decision | None]:
    """Read the stored layout or decision, whatever its batch. ``wait`` is as in ``ReadMarker``.

    Raises MarkerError for a decision that is incomplete, or that kprod did not write.
    """
    layout: Marker | None = yield ReadMarker(of.layout_id, wait=wait)
    if layout is None or layout.winners is None or layout.batch != of.batch:
        return None if layout is None else Decision(layout, {})
    text = layout.winners
    for number in range(1, layout.pieces):
        # One transaction wrote all pieces: if one cannot be read yet, waiting for it ends.
        piece: Marker | None = yield ReadMarker(_group(of, number))
        if piece is None or piece.batch < layout.batch or piece.winners is None:
            raise MarkerError(f"{of}: piece {number} of the commit decision is missing")
        if piece.batch > layout.batch:  # another run goes on meanwhile
            return Decision(piece, {})
        text += piece.winners
    return Decision(layout, _winners(of, text, layout.shards))


def _group(of: Shard, number: int) -> str:
    return f"{of.layout_id}/{number}" if number else of.layout_id


def _entry(one: PreparedShard | None) -> str:
    if one is None:
        return ""
    found = one.transaction
    level = "" if found.level is None else found.level
    return f"{one.shard.attempt}:{found.producer_id}:{found.epoch}:{level}"


ENTRY = re.compile(r"(\d{1,9}):(\d{1,19}):(\d{1,5}):(\d{0,3})", re.ASCII)
"""Attempt, producer id, epoch, and the level of ``transaction.version`` if it is known."""


def _winners(of: Shard, text: str, shards: int | None) -> dict[int, PreparedShard]:
    entries = text.split(",")
    found = [ENTRY.fullmatch(entry) for entry in entries]
    try:
        if len(entries) != shards or any(e and not f for e, f in zip(entries, found, strict=True)):
            raise InvalidRecordError(f"expected {shards} entries, ATTEMPT:PRODUCER ID:EPOCH:LEVEL")
        return {
            number: _winner(of, number, *one.groups()) for number, one in enumerate(found) if one
        }
    except InvalidRecordError as error:
        raise MarkerError(
            f"the commit decision for {of} was not written by kprod: {text[:100]!r}. Use a"
            " different transaction_prefix for the job"
        ) from error


def _winner(
    of: Shard, number: int, attempt: str, producer_id: str, epoch: str, level: str
) -> PreparedShard:
    shard = replace(of, number=number, attempt=int(attempt))
    transaction = PreparedTransaction(
        shard.transactional_id,
        int(producer_id),
        int(epoch),
        level=int(level) if level else None,
    )
    transaction.check()
    return PreparedShard(shard, transaction)
