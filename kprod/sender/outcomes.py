"""What an attempt's end means for its batch: acknowledged, tried again, or given up."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from kprod.buffer.accumulator import RecordAccumulator
from kprod.buffer.batch import ProducerBatch
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import LeaderHint
from kprod.errors import (
    BrokerError,
    DeliveryTimeoutError,
    KprodError,
    RecordTooLargeError,
)
from kprod.metrics.producer_metrics import ProducerMetrics
from kprod.sender.blame import blame
from kprod.sender.doubts import Doubts, proves
from kprod.sender.retry import (
    DUPLICATE_SEQUENCE,
    FATAL,
    OUT_OF_ORDER_SEQUENCE,
    TOO_LARGE,
    Attempt,
    Verdict,
    judge,
)
from kprod.sender.sequences import Sequences
from kprod.types import Persisted, TopicPartition

log = logging.getLogger(__name__)

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

    Thread: the sender's only. A batch whose time ran out on the wire has its outcome at once, but
    keeps its memory until the request has ended: the socket may still be reading it.
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
        trouble_with: Callable[[int], KprodError | None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._sequences = sequences
        self._metrics = metrics
        self._retries = retries
        self._delivery_timeout = delivery_timeout
        self._trouble_with = trouble_with  # a node: why it cannot be reached
        self._on_wire: dict[ProducerBatch, None] = {}  # in the order of leaving
        self._doubts = Doubts()
        self.strays = False  # there may be a batch that nothing leads to its end

    def left(self, batch: ProducerBatch) -> None:
        """``batch`` is part of a request now."""
        self._on_wire[batch] = None
        self._sequences.left(batch)

    def not_sent(self, batch: ProducerBatch, now: float) -> None:
        """There was no request in the end for ``batch``, which was taken for one: queue it."""
        self._off_wire(batch)
        batch.on_wire = False
        batch.last_attempt_at = now
        self._accumulator.put_back(batch)

    def stray(self, batch: ProducerBatch, now: float) -> None:
        """No queue and no request has ``batch``, for a turn broke off: queue it, or see it off."""
        if batch.delivery.done:
            self._see_off(batch)
        elif batch.attempts:
            lost = KprodError(f"what became of a request for {batch.tp} is not known")
            lost.retriable = True
            self.attempt_failed(batch, lost, now, maybe=True)
        else:
            self._accumulator.put_back(batch)

    def _see_off(self, batch: ProducerBatch) -> None:
        """Whatever was done with ``batch`` before, nothing is left to do."""
        self._off_wire(batch)
        self._doubts.discard(batch)
        self._sequences.resolved(batch)
        with suppress(ValueError):  # it was given back before
            batch.release()
        self._accumulator.incomplete.discard(batch)

    def unsettled(self) -> list[ProducerBatch]:
        """Every batch that is not done with, unless it is in doubt."""
        sent = [*self._on_wire, *self._sequences.unresolved()]
        known = dict.fromkeys([*self._accumulator.incomplete.copy(), *sent])
        for batch in self._doubts.all():
            known.pop(batch, None)
        return list(known)

    def answered_after(self, node_id: int, seconds: float, throttle_ms: int) -> None:
        """A request to the node was answered ``seconds`` after it was made."""
        self._metrics.answered(node_id, seconds, throttle_ms)

    def leaders_moved(self, hints: Mapping[TopicPartition, LeaderHint]) -> None:
        """The answer to a request named the new leaders of partitions it has refused."""
        self._metadata.take_leader_hints(hints)

    # An attempt has ended -----------------------------------------------------------------------

    def stored(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        """The leader acknowledged ``batch``."""
        try:
            self._off_wire(batch)
            self._acknowledge(batch, base_offset, append_time)
        except Exception as error:
            self._broke_off(batch, error)

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        earlier = self._doubts.take(batch.tp)
        if earlier:
            self._tell_apart(earlier, batch, base_offset)
        self._sequences.acknowledged(batch, base_offset)
        self._succeed(batch, base_offset, append_time)

    def _tell_apart(
        self, doubted: list[ProducerBatch], acknowledged: ProducerBatch, base_offset: int
    ) -> None:
        """What ``acknowledged``, the first one after them, says of batches in doubt."""
        roomy = self._sequences.leaves_room(acknowledged, base_offset)
        for batch in doubted:
            if roomy and proves(acknowledged, batch):
                self._succeed(batch, -1, -1)
            else:
                self._leave_in_doubt(batch)

    def attempt_failed(
        self,
        batch: ProducerBatch,
        error: KprodError,
        now: float,
        *,
        maybe: bool = False,
    ) -> None:
        """An attempt ended in ``error``; ``maybe``: the broker may have stored it all the same."""
        try:
            self._failed(batch, error, now, maybe=maybe)
        except Exception as mistake:
            self._broke_off(batch, mistake)

    def _failed(self, batch: ProducerBatch, error: KprodError, now: float, *, maybe: bool) -> None:
        self._off_wire(batch)
        repeated = batch.attempts > 1 or batch.maybe_written
        batch.maybe_written = batch.maybe_written or maybe or error.persisted is Persisted.MAYBE
        batch.failed(error)
        if error.refreshes_metadata:
            self._metadata.request_update()
        if batch.delivery.done:  # its time ran out while it was on the wire
            self._sequences.resolved(batch)
            batch.release()
            return
        if not self._sequences.awaits(batch):
            raise AssertionError(f"the end of {batch!r} had begun before")
        verdict = judge(error, self._attempt(batch, now, repeated=repeated))
        if verdict is Verdict.DONE:
            self._acknowledge(batch, -1, -1)
        elif verdict is Verdict.DOUBT:
            self._sequences.resolved(batch)
            self._doubts.add(batch)
        elif verdict is Verdict.FAIL:
            self._refused(batch, error, now)
        elif verdict is Verdict.SPLIT:
            self._metrics.batches_split += 1
            self._sequences.was_split(batch, self._accumulator.split(batch))
        elif verdict is Verdict.EXPIRE:
            self._accumulator.put_back(batch)  # the next turn begins with the end of what is late
        else:
            if verdict is Verdict.RESEQUENCE:
                self._end_doubts(batch.tp)
                self._sequences.want_new_epoch(batch)
            batch.last_attempt_at = now
            self._metrics.retried(batch)
            self._accumulator.put_back(batch)

    def _refused(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """No further attempt would help, be it of this batch or of any."""
        code = error.code if isinstance(error, BrokerError) else None
        if code == DUPLICATE_SEQUENCE:
            batch.maybe_written = True
            error.add_note(NEVER_SENT_BEFORE)
            log.error("%r was taken for a repetition; %s", batch, NEVER_SENT_BEFORE)
        elif code in FATAL and self._sequences.idempotent:
            self._sequences.fatal = BrokerError(code, f"{batch.tp}, and with it everything else")
            self._sequences.fatal.add_note(MAKE_ANEW)
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
        )

    def _broke_off(self, batch: ProducerBatch, cause: Exception) -> None:
        """Memory has run out, say, in the midst of settling ``batch``; nobody else will end it."""
        before, self.strays = self.strays, True  # in case this breaks off, too
        log.error("%r could not be settled", batch, exc_info=cause)
        broken = KprodError(f"{batch.tp}: the end of an attempt could not be noted: {cause!r}")
        broken.persisted = Persisted.MAYBE
        self._accumulator.remove(batch)
        batch.delivery.fail(broken)
        self._see_off(batch)
        self.strays = before

    def _out_of_time(self, batch: ProducerBatch, now: float) -> bool:
        return now >= batch.created_at + self._delivery_timeout

    def _off_wire(self, batch: ProducerBatch) -> None:
        if batch in self._on_wire:
            del self._on_wire[batch]
            self._sequences.off_wire(batch)

    def _succeed(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        ended_before = batch.delivery.done
        if not ended_before:
            self._count(batch)  # first: its size goes with its memory
        batch.release()
        if not ended_before:
            batch.delivery.succeed(base_offset, append_time)
            # Last: a flush that looks in between must find the batch, and wait for its callbacks.
            self._accumulator.incomplete.discard(batch)

    def _count(self, batch: ProducerBatch) -> None:
        builder = batch.builder
        self._metrics.acknowledged(
            batch.tp.topic,
            builder.record_count,
            batch.size,
            builder.uncompressed_bytes,
            builder.max_record_size,
            batch.last_attempt_at - batch.created_at,
        )

    # A batch has ended ----------------------------------------------------------------------------

    def give_up(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """End a batch that is neither queued nor on the wire with ``error``."""
        final = self._final(batch, error, now)
        self._doubts.discard(batch)
        self._sequences.resolved(batch)
        if self._sequences.all_resolved(batch.tp):
            self._end_doubts(batch.tp)
        batch.release()
        self._fail(batch, final)

    def _end_doubts(self, tp: TopicPartition) -> None:
        """No later batch of the partition will tell what became of them."""
        for batch in self._doubts.take(tp):
            self._leave_in_doubt(batch)

    def _leave_in_doubt(self, batch: ProducerBatch) -> None:
        batch.release()
        self._fail(batch, self.unknown_fate(batch))

    def expire(self, batch: ProducerBatch, limit: float, now: float) -> None:
        """End a batch whose time ran out: on the wire, in doubt, or taken from its queue."""
        if batch.on_wire:
            state = "its last attempt is unanswered"
        elif self._doubts.discard(batch):
            state = "the broker refused its repetition"
        else:
            state = "it was still queued"
        self.end(batch, self._expired(batch, limit, state), now)

    def end(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """End a batch with ``error``: on the wire (its request goes on), in doubt, or taken out."""
        if batch.on_wire:
            batch.maybe_written = True
            self._fail(batch, self._final(batch, error, now))
        else:
            self.give_up(batch, error, now)

    def unanswered(self, created_before: float = FOREVER) -> list[ProducerBatch]:
        """The batches on the wire or in doubt that have no outcome, created before a time."""
        return [
            batch
            for batch in [*self._on_wire, *self._doubts.all()]
            if not batch.delivery.done and batch.created_at <= created_before
        ]

    def oldest_unanswered(self) -> float:
        """When the oldest of ``unanswered`` was created; infinite for none."""
        return min((batch.created_at for batch in self.unanswered()), default=FOREVER)

    def _fail(self, batch: ProducerBatch, error: KprodError) -> None:
        self._metrics.failed(batch)
        errors = blame(error, batch.tp, batch.record_count)
        if errors:
            batch.delivery.fail_each(errors)
        else:
            batch.delivery.fail(error)
        self._accumulator.incomplete.discard(batch)

    def _expired(self, batch: ProducerBatch, limit: float, state: str) -> KprodError:
        cause = batch.last_error or self._metadata.trouble(batch.tp.topic)
        if cause is None and (leader := self._metadata.snapshot.leader(batch.tp)) is not None:
            cause = self._trouble_with(leader.leader_id)
        error = DeliveryTimeoutError(
            f"{batch.record_count} records for {batch.tp} were not acknowledged within"
            f" delivery_timeout_ms ({limit * 1000:.0f} ms): {state} after {batch.attempts} attempts"
            + ("" if cause is None else f"; the last error was: {cause}")
        )
        error.__cause__ = cause
        return error

    def unknown_fate(self, batch: ProducerBatch) -> KprodError:
        """The error of a batch that may be in the log and cannot be sent again safely."""
        error = BrokerError(
            OUT_OF_ORDER_SEQUENCE, f"{batch.tp}: an earlier attempt may have been stored"
        )
        error.persisted = Persisted.MAYBE
        return error

    def _final(self, batch: ProducerBatch, error: KprodError, now: float) -> KprodError:
        """The error for the batch's futures, with what is known of the log in ``persisted``."""
        final = self._in_the_users_words(batch, error, now)
        final.persisted = Persisted.MAYBE if batch.maybe_written else Persisted.NO
        return final

    def _in_the_users_words(
        self, batch: ProducerBatch, error: KprodError, now: float
    ) -> KprodError:
        if isinstance(error, BrokerError) and error.code in TOO_LARGE:
            return RecordTooLargeError(
                f"the broker refused a batch of {batch.size} bytes, {batch.record_count} records,"
                f" for {batch.tp}: larger than the topic's max.message.bytes"
            )
        if isinstance(error, DeliveryTimeoutError):
            return error
        if not error.retriable:
            return copy.copy(error)
        if self._out_of_time(batch, now):
            return self._expired(batch, self._delivery_timeout, "no time was left")
        worn_out = copy.copy(error)
        worn_out.add_note(f"retries were used up after {batch.attempts} attempts")
        return worn_out
