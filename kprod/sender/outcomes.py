"""What becomes of a batch after an attempt: it is acknowledged, tried again, or given up."""

from __future__ import annotations

import copy
from contextlib import suppress

from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import Leadership
from kprod.errors import BrokerError, DeliveryTimeoutError, ErrorCode, KprodError
from kprod.metrics.producer_metrics import ProducerMetrics
from kprod.quantities import counted
from kprod.sender.network import Network
from kprod.sender.partition import Partition
from kprod.sender.partitions import PartitionSet
from kprod.sender.retry import (
    FATAL,
    TOO_LARGE,
    Attempt,
    Verdict,
    errors_by_record,
    expired,
    judge,
    too_large,
    unknown_fate,
)
from kprod.sender_log import SenderLog
from kprod.types import Persisted
from kprod_ext.batch import ProducerBatch


def proves(acknowledged: ProducerBatch, earlier: ProducerBatch) -> bool:
    """True if the acknowledgement of a later batch proves that the refused ``earlier`` is stored.

    Both answers must come from the same broker, for the same topic id. Another broker, or a topic
    that was created again, may not know the producer, and accepts any batch as the first. The
    leader's epoch may have grown in between: after a restart, a refusal often comes before the
    metadata with the new epoch.
    """
    now: Leadership | None = acknowledged.attempted_leader
    then: Leadership | None = earlier.attempted_leader
    if now is None or then is None or now.topic_id != then.topic_id:
        return False
    return now.leader_id == then.leader_id and now.leader_epoch >= then.leader_epoch


log = SenderLog(__name__)

NEVER_SENT_BEFORE = (
    "it was never sent before: another producer writes with the same producer id, or the broker is"
    " mistaken; whether it has stored the records is not known"
)
MAKE_ANEW = (
    "an idempotent producer that is refused so can send nothing more: make a new one once its"
    " principal is allowed to write"
)


class Outcomes:
    """Gives each batch its outcome once, and frees its memory when no request holds it.

    If a batch expires on the wire, it has its outcome at once. Its memory is freed when the request
    has ended, because the socket may still read it. Used only by the sender's thread.
    """

    def __init__(
        self,
        partitions: PartitionSet,
        metadata: Metadata,
        network: Network,
        metrics: ProducerMetrics,
        *,
        retries: int,
    ) -> None:
        self.partitions = partitions
        partitions.expire = self.expire
        self._accumulator = partitions.accumulator
        self._delivery_timeout = partitions.delivery_timeout
        self.metadata = metadata
        self.network = network
        self.log = network.log
        self.metrics = metrics
        self._retries = retries

    @property
    def drained(self) -> bool:
        """True if every record has its outcome, and no request holds a batch."""
        return not self.partitions.on_wire and len(self._accumulator.incomplete) == 0

    def cut(self, batch: ProducerBatch, count: int, now: float) -> None:
        """Replace ``batch``, taken for a request, by smaller ones with its sequence numbers."""
        self.metrics.batches_split += 1
        batch.partition.split(batch, count, now)

    def free(self) -> None:
        """Free all memory. Every record has its outcome, and no request is in flight."""
        for batch in self._unsettled():
            with suppress(ValueError):  # its memory was given back before
                batch.release()
            self._accumulator.incomplete.discard(batch)

    def _unsettled(self) -> set[ProducerBatch]:
        """All batches that have no outcome or are on the wire."""
        return self._accumulator.incomplete.union(self.partitions.sent())

    def busy_topics(self) -> set[str]:
        """The topics with batches that have no outcome or are on the wire."""
        return {batch.tp.topic for batch in self._unsettled()}

    # An attempt has ended -----------------------------------------------------------------------

    def stored(self, batch: ProducerBatch, base_offset: int, append_time: int, now: float) -> None:
        """The leader has acknowledged ``batch``."""
        partition: Partition = batch.partition
        if partition.unresolved:
            self._resolve_by(partition, batch, base_offset, now)
        partition.acknowledged(batch, base_offset)
        self._succeed(batch, base_offset, append_time)

    def _resolve_by(
        self, partition: Partition, acknowledged: ProducerBatch, base_offset: int, now: float
    ) -> None:
        """Settle the unresolved batches: ``acknowledged`` is the first batch after them."""
        roomy = partition.leaves_room(acknowledged, base_offset)
        unresolved, partition.unresolved = partition.unresolved, []
        for batch in unresolved:
            if roomy and proves(acknowledged, batch):
                self._succeed(batch, -1, -1)
            else:
                self._leave_unresolved(batch, now)

    def attempt_failed(
        self,
        batch: ProducerBatch,
        error: KprodError,
        now: float,
        *,
        maybe: bool = False,
    ) -> None:
        """An attempt ended in ``error``.

        ``maybe``: the broker may have stored the batch nevertheless.
        """
        partition: Partition = batch.partition
        was_on_wire = partition.off_wire(batch)
        repeated = batch.attempts > 1 or batch.maybe_written
        batch.maybe_written = batch.maybe_written or maybe or error.persisted is Persisted.MAYBE
        batch.failed(error)
        if error.refreshes_metadata:
            self.metadata.request_update()
        if batch.delivery.done:
            if was_on_wire:  # its time ran out on the wire, or the loop crashed
                partition.resolved(batch)
                batch.release()
            return
        if batch not in partition.in_flight:
            raise AssertionError(f"the end of {batch!r} had begun before")
        verdict = judge(error, self._attempt(batch, now, repeated=repeated))
        self._carry_out(verdict, batch, error, now)

    def _carry_out(
        self, verdict: Verdict, batch: ProducerBatch, error: KprodError, now: float
    ) -> None:
        partition: Partition = batch.partition
        if verdict is Verdict.DONE:
            self.stored(batch, -1, -1, now)
        elif verdict is Verdict.UNRESOLVED:
            partition.resolved(batch)
            partition.unresolved.append(batch)
        elif verdict is Verdict.FAIL:
            self._refused(batch, error, now)
        elif verdict is Verdict.SPLIT:
            self._accumulator.refused_as_too_large(batch, partition.queue)
            self.cut(batch, 2, now)
        elif verdict is Verdict.EXPIRE:
            partition.put_back(batch, now)  # its deadline has come
        else:
            if verdict is Verdict.RESEQUENCE:
                self._end_unresolved(partition, now)
                partition.want_new_epoch()
            batch.last_attempt_at = now
            self.metrics.retried(batch)
            partition.put_back(batch, now)

    def _refused(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """The error is final for this batch, or for all batches."""
        code = error.code if isinstance(error, BrokerError) else None
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.maybe_written = True
            error.add_note(NEVER_SENT_BEFORE)
            log.error("%r was taken for a repetition; %s", batch, NEVER_SENT_BEFORE)
        elif self.partitions.transaction is not None:
            pass  # ``record_failed`` decides what becomes of the transaction
        elif code in FATAL and self.partitions.idempotent:
            fatal = BrokerError(code, f"{batch.tp}, and with it everything else")
            fatal.add_note(MAKE_ANEW)
            self.partitions.identity.fatal = fatal
            error.add_note(MAKE_ANEW)
        self.give_up(batch, error, now)

    def _attempt(self, batch: ProducerBatch, now: float, *, repeated: bool) -> Attempt:
        return Attempt(
            records=batch.record_count,
            attempts=batch.attempts,
            retries=self._retries,
            out_of_time=self._out_of_time(batch, now),
            has_sequence=batch.has_sequence,
            oldest=batch.partition.in_flight[0] is batch,
            provable=batch.partition.is_provable(batch),
            maybe_written=batch.maybe_written,
            repeated=repeated,
            transactional=self.partitions.transaction is not None,
        )

    def _out_of_time(self, batch: ProducerBatch, now: float) -> bool:
        return now >= batch.created_at + self._delivery_timeout

    def _succeed(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        ended_before = batch.delivery.done
        if not ended_before:
            self.metrics.acknowledged(batch)
        batch.release()
        if not ended_before:
            batch.delivery.succeed(base_offset, append_time)
            # Last: a flush that looks in between must find the batch, and wait for its callbacks.
            self._accumulator.incomplete.discard(batch)

    # A batch has ended ----------------------------------------------------------------------------

    def give_up(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """End a batch with ``error``. It is neither queued nor on the wire."""
        final = self._final(batch, error, now)
        partition: Partition = batch.partition
        if batch in partition.unresolved:
            partition.unresolved.remove(batch)
        partition.resolved(batch)
        if not partition.in_flight:
            self._end_unresolved(partition, now)
        batch.release()
        self._fail(batch, final, now)

    def _final(self, batch: ProducerBatch, error: KprodError, now: float) -> KprodError:
        """The error for the futures. ``persisted`` says whether the records may be in the log."""
        if isinstance(error, BrokerError) and error.code in TOO_LARGE:
            final = too_large(batch)
        elif isinstance(error, DeliveryTimeoutError):
            final = error
        elif error.retriable and self._out_of_time(batch, now):
            final = self._expired(batch, "no time was left", now)
        else:
            final = copy.copy(error)
            if error.retriable:
                final.add_note(f"retries were used up after {counted(batch.attempts, 'attempt')}")
        final.persisted = Persisted.MAYBE if batch.maybe_written else Persisted.NO
        return final

    def _expired(self, batch: ProducerBatch, state: str, now: float) -> KprodError:
        cause = batch.last_error or self.metadata.trouble(batch.tp.topic)
        if cause is None and self.partitions.needs_producer_id:
            cause = self.partitions.identity.trouble
        if cause is None and (leader := self.metadata.snapshot.leader(batch.tp)) is not None:
            cause = self.network.trouble(leader.leader_id, now)
        return expired(batch, self._delivery_timeout, state, cause)

    def _end_unresolved(self, partition: Partition, now: float) -> None:
        """Fail the unresolved batches of the partition: no later batch will settle them."""
        unresolved, partition.unresolved = partition.unresolved, []
        for batch in unresolved:
            self._leave_unresolved(batch, now)

    def _leave_unresolved(self, batch: ProducerBatch, now: float) -> None:
        batch.release()
        self._fail(batch, unknown_fate(batch), now)

    def expire(self, batch: ProducerBatch, now: float) -> None:
        """End a batch whose delivery timeout has passed: on the wire, unresolved, or queued."""
        if batch.on_wire:
            state = "its last attempt is unanswered"
        elif batch in batch.partition.unresolved:
            state = "the broker refused its repetition"
        else:
            state = "it was still queued"
        self.end(batch, self._expired(batch, state, now), now)

    def end(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """End a batch with ``error``. If it is on the wire, its request continues."""
        if batch.on_wire:
            batch.maybe_written = True
            self._fail(batch, self._final(batch, error, now), now)
        else:
            self.give_up(batch, error, now)

    def _fail(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        if not batch.delivery.done:  # else ``disown`` has ended and counted it
            self.metrics.failed(batch)
        if self.partitions.transaction is not None:
            self.partitions.transaction.record_failed(error)
        if not batch.delivery.is_heard():
            self.log.unobserved(batch.tp.topic, batch.record_count, error, now)
        errors = errors_by_record(error, batch.tp, batch.record_count)
        if errors:
            batch.delivery.fail_each(errors)
        else:
            batch.delivery.fail(error)
        self._accumulator.incomplete.discard(batch)
