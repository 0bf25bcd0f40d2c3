"""The end of an attempt for its batch: acknowledged, tried again, or given up."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress

from kprod.buffer.accumulator import RecordAccumulator
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import LeaderHint, Leadership
from kprod.errors import BrokerError, DeliveryTimeoutError, ErrorCode, KprodError
from kprod.metrics.producer_metrics import ProducerMetrics
from kprod.quantities import counted
from kprod.sender.batch_errors import errors_by_record, expired, too_large, unknown_fate
from kprod.sender.connection_log import ConnectionLog, UnreadFailures
from kprod.sender.retry import (
    FATAL,
    TOO_LARGE,
    Attempt,
    Verdict,
    judge,
)
from kprod.sender.sequences import Sequences
from kprod.sender_log import SenderLog
from kprod.types import Persisted, TopicPartition
from kprod_ext.batch import ProducerBatch


class UnresolvedBatches:
    """Batches that may be stored, by partition, in sequence order, until an answer settles them.

    They keep their memory, and are neither queued nor on the wire. Thread: the sender's only.
    """

    def __init__(self) -> None:
        self._held: dict[TopicPartition, list[ProducerBatch]] = {}

    def add(self, batch: ProducerBatch) -> None:
        """Hold ``batch``, which follows the held batches of its partition."""
        self._held.setdefault(batch.tp, []).append(batch)

    def discard(self, batch: ProducerBatch) -> bool:
        """Drop one batch; False when it was not held."""
        held = self._held.get(batch.tp, [])
        if batch not in held:
            return False
        held.remove(batch)
        return True

    def take(self, tp: TopicPartition) -> list[ProducerBatch]:
        """Drop the batches of one partition, and return them."""
        return self._held.pop(tp, []) if self._held else []

    def all(self) -> list[ProducerBatch]:
        """All held batches."""
        return [batch for held in self._held.values() for batch in held]


def proves(acknowledged: ProducerBatch, earlier: ProducerBatch) -> bool:
    """True when the broker that refused ``earlier`` is the one that acknowledged a later batch.

    Another broker, or a topic that was created anew, may know nothing of the producer, and takes
    any batch as the first. The leader's epoch may have grown in between: a refusal that follows a
    restart often comes before the metadata about it.
    """
    now: Leadership | None = acknowledged.attempted_leader
    then: Leadership | None = earlier.attempted_leader
    if now is None or then is None or now.topic_id != then.topic_id:
        return False
    return now.leader_id == then.leader_id and now.leader_epoch >= then.leader_epoch


log = SenderLog(__name__)

FOREVER = float("inf")
NEVER_SENT_BEFORE = (
    "it was never sent before: another producer writes with the same producer id, or the broker is"
    " mistaken; whether it has stored the records is not known"
)
MAKE_ANEW = (
    "an idempotent producer that is refused so can send nothing more: make a new one once its"
    " principal is allowed to write"
)


class Outcomes:
    """Settles batches, each exactly once, and frees their memory when they are off the wire.

    Thread: the sender's only. A batch that runs out of time on the wire has its outcome at once,
    but keeps its memory until the request has ended: the socket may still be reading it.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        sequences: Sequences,
        metrics: ProducerMetrics,
        *,
        retries: int,
        delivery_timeout: float,
        trouble_with: Callable[[int, float], KprodError | None],
        log: ConnectionLog,
        unread: UnreadFailures,
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._sequences = sequences
        self._metrics = metrics
        self._retries = retries
        self._delivery_timeout = delivery_timeout
        self._trouble_with = trouble_with
        self._log = log
        self._unread = unread
        self._on_wire: dict[ProducerBatch, None] = {}  # in the order of leaving
        self._unresolved = UnresolvedBatches()

    @property
    def drained(self) -> bool:
        """True when every record has its outcome, and no request holds a batch."""
        return not self._on_wire and len(self._accumulator.incomplete) == 0

    def left(self, batch: ProducerBatch) -> None:
        """``batch`` is part of a request now."""
        self._on_wire[batch] = None
        self._sequences.left(batch)

    def cut(self, batch: ProducerBatch, count: int) -> None:
        """Queue ``batch``, which was taken for a request, as smaller ones under its numbers."""
        self._metrics.batches_split += 1
        self._sequences.was_split(batch, self._accumulator.cut(batch, count))

    def free(self) -> None:
        """Free all memory. Every record has its outcome, and no request is on its way."""
        for batch in self.unsettled():
            with suppress(ValueError):  # its memory was given back before
                batch.release()
            self._accumulator.incomplete.discard(batch)

    def unsettled(self) -> list[ProducerBatch]:
        """Every batch without an outcome or on the wire, but unresolved ones."""
        sent = [*self._on_wire, *self._sequences.in_flight()]
        known = dict.fromkeys([*self._accumulator.incomplete.copy(), *sent])
        for batch in self._unresolved.all():
            known.pop(batch, None)
        return list(known)

    def busy_topics(self) -> set[str]:
        """The topics with batches that have no outcome, or that a request holds."""
        return {batch.tp.topic for batch in [*self.unsettled(), *self._unresolved.all()]}

    def forget(self, topics: set[str]) -> None:
        """Nothing is sent to ``topics`` any more; no batch of them is left."""
        self._metrics.forget(topics)

    def answered_after(self, node_id: int, seconds: float, throttle_ms: int) -> None:
        """A request to the node was answered ``seconds`` after it was made."""
        self._metrics.answered(node_id, seconds, throttle_ms)
        self._metadata.throttled(node_id, throttle_ms)

    def answered_unasked(self, node_id: int, partition: str, now: float) -> None:
        """An answer of the node names ``partition``, which its request did not have."""
        what = f"broker {node_id} answers for partitions that were not asked for"
        self._log.seldom(what, f"{what}, {partition} among them", now)

    def leaders_moved(self, hints: Mapping[TopicPartition, LeaderHint]) -> None:
        """The answer to a request named the new leaders of partitions it has refused."""
        self._metadata.take_leader_hints(hints)

    # An attempt has ended -----------------------------------------------------------------------

    def stored(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        """The leader acknowledged ``batch``."""
        self._off_wire(batch)
        self._acknowledge(batch, base_offset, append_time)

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        earlier = self._unresolved.take(batch.tp)
        if earlier:
            self._tell_apart(earlier, batch, base_offset)
        self._sequences.acknowledged(batch, base_offset)
        self._succeed(batch, base_offset, append_time)

    def _tell_apart(
        self, unresolved: list[ProducerBatch], acknowledged: ProducerBatch, base_offset: int
    ) -> None:
        """Settle unresolved batches by ``acknowledged``, the first batch after them."""
        roomy = self._sequences.leaves_room(acknowledged, base_offset)
        for batch in unresolved:
            if roomy and proves(acknowledged, batch):
                self._succeed(batch, -1, -1)
            else:
                self._leave_unresolved(batch)

    def attempt_failed(
        self,
        batch: ProducerBatch,
        error: KprodError,
        now: float,
        *,
        maybe: bool = False,
    ) -> None:
        """An attempt ended in ``error``; ``maybe``: the broker may have stored it all the same."""
        was_on_wire = self._off_wire(batch)
        repeated = batch.attempts > 1 or batch.maybe_written
        batch.maybe_written = batch.maybe_written or maybe or error.persisted is Persisted.MAYBE
        batch.failed(error)
        if error.refreshes_metadata:
            self._metadata.request_update()
        if batch.delivery.done:
            self._ended_meanwhile(batch, was_on_wire)
            return
        if not self._sequences.awaits(batch):
            raise AssertionError(f"the end of {batch!r} had begun before")
        verdict = judge(error, self._attempt(batch, now, repeated=repeated))
        if verdict is Verdict.DONE:
            self._acknowledge(batch, -1, -1)
        elif verdict is Verdict.UNRESOLVED:
            self._sequences.resolved(batch)
            self._unresolved.add(batch)
        elif verdict is Verdict.FAIL:
            self._refused(batch, error, now)
        elif verdict is Verdict.SPLIT:
            self._metrics.batches_split += 1
            self._sequences.was_split(batch, self._accumulator.split(batch))
        elif verdict is Verdict.EXPIRE:
            self._accumulator.put_back(batch)  # the next turn begins by ending late batches
        else:
            if verdict is Verdict.RESEQUENCE:
                self._end_unresolved(batch.tp)
                self._sequences.want_new_epoch(batch)
            batch.last_attempt_at = now
            self._metrics.retried(batch)
            self._accumulator.put_back(batch)

    def _ended_meanwhile(self, batch: ProducerBatch, was_on_wire: bool) -> None:
        """``batch`` had its outcome: its time ran out on the wire, or a turn broke off."""
        if was_on_wire:
            self._sequences.resolved(batch)
            batch.release()

    def _refused(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """No further attempt would help this batch, or any batch."""
        code = error.code if isinstance(error, BrokerError) else None
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.maybe_written = True
            error.add_note(NEVER_SENT_BEFORE)
            log.error("%r was taken for a repetition; %s", batch, NEVER_SENT_BEFORE)
        elif self._sequences.transaction is not None:
            pass  # ``record_failed`` decides what becomes of the transaction
        elif code in FATAL and self._sequences.idempotent:
            fatal = BrokerError(code, f"{batch.tp}, and with it everything else")
            fatal.add_note(MAKE_ANEW)
            self._sequences.identity.fatal = fatal
            error.add_note(MAKE_ANEW)
        self.give_up(batch, error, now)

    def _attempt(self, batch: ProducerBatch, now: float, *, repeated: bool) -> Attempt:
        return Attempt(
            records=batch.record_count,
            attempts=batch.attempts,
            retries=self._retries,
            out_of_time=self._out_of_time(batch, now),
            has_sequence=batch.has_sequence,
            oldest=self._sequences.is_oldest(batch),
            provable=self._sequences.is_provable(batch),
            maybe_written=batch.maybe_written,
            repeated=repeated,
            transactional=self._sequences.transaction is not None,
        )

    def _out_of_time(self, batch: ProducerBatch, now: float) -> bool:
        return now >= batch.created_at + self._delivery_timeout

    def _off_wire(self, batch: ProducerBatch) -> bool:
        """Note that no request holds ``batch`` any more; False when that was noted before."""
        if batch not in self._on_wire:
            return False
        del self._on_wire[batch]
        self._sequences.off_wire(batch)
        return True

    def _succeed(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        ended_before = batch.delivery.done
        if not ended_before:
            self._count(batch)  # first: ``release`` clears its size
        batch.release()
        if not ended_before:
            batch.delivery.succeed(base_offset, append_time)
            # Last: a flush that looks in between must find the batch, and wait for its callbacks.
            self._accumulator.incomplete.discard(batch)

    def _count(self, batch: ProducerBatch) -> None:
        self._metrics.acknowledged(
            batch.tp.topic,
            batch.record_count,
            batch.size,
            batch.uncompressed_bytes,
            batch.max_record_size,
            batch.last_attempt_at - batch.created_at,
        )

    # A batch has ended ----------------------------------------------------------------------------

    def give_up(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """End a batch that is neither queued nor on the wire with ``error``."""
        final = self._final(batch, error, now)
        self._unresolved.discard(batch)
        self._sequences.resolved(batch)
        if self._sequences.all_resolved(batch.tp):
            self._end_unresolved(batch.tp)
        batch.release()
        self._fail(batch, final)

    def _final(self, batch: ProducerBatch, error: KprodError, now: float) -> KprodError:
        """The error for the futures; its ``persisted`` says if the log may have the records."""
        limit = self._delivery_timeout
        if isinstance(error, BrokerError) and error.code in TOO_LARGE:
            final = too_large(batch)
        elif isinstance(error, DeliveryTimeoutError):
            final = error
        elif error.retriable and self._out_of_time(batch, now):
            final = self._expired(batch, limit, "no time was left", now)
        else:
            final = copy.copy(error)
            if error.retriable:
                final.add_note(f"retries were used up after {counted(batch.attempts, 'attempt')}")
        final.persisted = Persisted.MAYBE if batch.maybe_written else Persisted.NO
        return final

    def _expired(self, batch: ProducerBatch, limit: float, state: str, now: float) -> KprodError:
        cause = batch.last_error or self._metadata.trouble(batch.tp.topic)
        if cause is None and self._sequences.needs_producer_id:
            cause = self._sequences.identity.trouble
        if cause is None and (leader := self._metadata.snapshot.leader(batch.tp)) is not None:
            cause = self._trouble_with(leader.leader_id, now)
        return expired(batch, limit, state, cause)

    def _end_unresolved(self, tp: TopicPartition) -> None:
        """No later batch of the partition will settle its unresolved ones."""
        for batch in self._unresolved.take(tp):
            self._leave_unresolved(batch)

    def _leave_unresolved(self, batch: ProducerBatch) -> None:
        batch.release()
        self._fail(batch, unknown_fate(batch))

    def expire(self, batch: ProducerBatch, limit: float, now: float) -> None:
        """End a batch that ran out of time: on the wire, unresolved, or taken from its queue."""
        if batch.on_wire:
            state = "its last attempt is unanswered"
        elif self._unresolved.discard(batch):
            state = "the broker refused its repetition"
        else:
            state = "it was still queued"
        self.end(batch, self._expired(batch, limit, state, now), now)

    def end(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """End a batch with ``error``: on the wire (its request goes on), held, or taken out."""
        if batch.on_wire:
            batch.maybe_written = True
            self._fail(batch, self._final(batch, error, now))
        else:
            self.give_up(batch, error, now)

    def unanswered(self, created_before: float = FOREVER) -> list[ProducerBatch]:
        """The batches on the wire or unresolved that have no outcome, created before a time."""
        return [
            batch
            for batch in [*self._on_wire, *self._unresolved.all()]
            if not batch.delivery.done and batch.created_at <= created_before
        ]

    def oldest_unanswered(self) -> float:
        """When the oldest of ``unanswered`` was created; infinite for none."""
        return min((batch.created_at for batch in self.unanswered()), default=FOREVER)

    def _fail(self, batch: ProducerBatch, error: KprodError) -> None:
        if not batch.delivery.done:  # else ``disown`` has ended and counted it
            self._metrics.failed(batch)
        if self._sequences.transaction is not None:
            self._sequences.transaction.record_failed(error)
        if not batch.delivery.is_heard():
            self._unread.failed(batch.tp.topic, batch.record_count, error)
        errors = errors_by_record(error, batch.tp, batch.record_count)
        if errors:
            batch.delivery.fail_each(errors)
        else:
            batch.delivery.fail(error)
        self._accumulator.incomplete.discard(batch)
