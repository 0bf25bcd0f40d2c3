"""One partition as the sender sees it: queue, leader, place, sequence numbers, batches in flight.

These rules keep records in order and without duplicates (KIP-98, KIP-360):

* At most one batch is on the wire until the partition's present leader has acknowledged one; then
  at most ``max_in_flight``. A broker that does not know this producer accepts *any* first
  sequence, so a second batch could overtake a refused first one (KAFKA-14359). Brokers forget idle
  producers (KIP-854), so an acknowledgement counts only for ``PROOF_LASTS``.
* A failed batch is sent again only when it is the oldest without an outcome, and no batch of the
  partition is on the wire.
* While the oldest batch has no outcome, at most four are sent after it. Those that end meanwhile
  count as well: a broker recognizes only the repetition of its last five batches.
* A partition takes a new epoch only when none of its batches is on the wire. Batches that may be in
  the log are then failed, and not sent again under the new epoch (``Partition._go_on_after``).
* A batch that ends without an acknowledgement leaves a gap if no batch was sent after it: the
  broker may expect its sequence next, and would refuse the following one. So the next batch is
  sent under a new epoch, as Kafka's ``TransactionManager`` does for unresolved sequences.

Without idempotence, the same object keeps the order of retries and the limit of batches in flight.
"""

from __future__ import annotations

import copy
import enum
from typing import TYPE_CHECKING

from kprod.buffer.batch_errors import errors_by_record, expired, too_large, unknown_fate
from kprod.cluster.snapshot import Leadership
from kprod.errors import BrokerError, ConnectionLost, DeliveryTimeoutError, ErrorCode, KprodError
from kprod.quantities import counted
from kprod.sender.deadlines import FOREVER
from kprod.sender.retry import (
    CORRUPT_ATTEMPTS,
    FATAL,
    MAKE_ANEW,
    NEVER_SENT_BEFORE,
    SEQUENCE_ERRORS,
    TOO_LARGE,
    proves,
)
from kprod.sender_log import SenderLog
from kprod.types import Persisted, ProducerId, TopicPartition
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue

if TYPE_CHECKING:
    from kprod.sender.broker import Broker
    from kprod.sender.partitions import PartitionSet

log = SenderLog(__name__)

NO_OFFSET = -1
LAST_SEQUENCE = 0x7FFFFFFF
"""The largest sequence number; the next one is 0. Sums and differences are masked with it."""
PROOF_LASTS = 60.0
"""Seconds. Brokers remember a silent producer for much longer."""


def place_in_order(batch: ProducerBatch) -> tuple[tuple[float, ...], float]:
    """A sort key: the order within a partition. Batches never taken come last, by their age."""
    return batch.drain_order or (FOREVER,), batch.created_at


class Place(enum.Enum):
    """Where a partition stands, and when it leaves that place.

    EMPTY: no batch is queued. Ends when a caller opens one. READY: the oldest batch may be sent, as
    far as it is known. Its broker, a full window or a missing producer id may hold it up, and
    ``may_send`` is asked last (``PartitionSet.drain``). LINGERING: the oldest batch waits for more
    records. Ends when the linger time is over, when the batch is full or a caller waits for it, or
    when all batches must be sent. BACKING_OFF: the oldest batch has failed. Ends with the back-off,
    or when the partition's leadership changes. WAITING: ``may_send`` returned False. No time ends
    it: whoever removes a reason calls ``go_on`` (an answer, a new epoch, the transaction).
    LEADERLESS: no leader is known. Ends when metadata names a leader; each answer that does not is
    followed by another request.
    """

    EMPTY = enum.auto()
    READY = enum.auto()
    LINGERING = enum.auto()
    BACKING_OFF = enum.auto()
    WAITING = enum.auto()
    LEADERLESS = enum.auto()


EMPTY, READY, LINGERING = Place.EMPTY, Place.READY, Place.LINGERING
BACKING_OFF, WAITING, LEADERLESS = Place.BACKING_OFF, Place.WAITING, Place.LEADERLESS


class Partition:
    """Everything that the sender knows about one partition. Used only by the owner of the loop.

    Only the sender removes batches from the queue. Callers add batches at its end, so they change
    the oldest one only if the queue was empty.

    ``in_flight``: batches that were taken to be sent and have not ended, in sequence order.
    ``on_wire`` counts those that a request holds; the others are queued again. ``unresolved``:
    batches that may be stored, in sequence order, until a later answer settles them. They are not
    in ``in_flight``, because they are not sent again and no batch waits for them, but they keep
    their memory.

    ``anchor_sequence`` and ``anchor_offset`` are the sequence number and the offset after the last
    acknowledged batch; the offset is -1 if it is unknown. ``has_gap``: the last used sequence
    number may be missing in the log. ``broker``: the leader. ``due``: see ``Deadlines``; it is
    never later than the next timed event of the partition.

    Each batch gets its outcome once, and its memory is freed when no request holds it. If a batch
    expires on the wire, it has its outcome at once. Its memory is freed when the request has ended,
    because the socket may still read it.
    """

    def __init__(self, queue: PartitionQueue, partitions: PartitionSet) -> None:
        self.tp: TopicPartition = queue.tp
        self._partitions = partitions
        self.queue = queue
        self._queues = partitions.queues.setdefault(self.tp.topic, {})
        self.place = EMPTY
        self.leader: Leadership | None = None
        self.broker: Broker | None = None  # None: no leader is known
        self._found_in = 0  # the number of the snapshot that names the leader
        self._goes_on_at = 0.0  # when linger or back-off end
        self.due = FOREVER
        self.producer: ProducerId | None = None
        self.next_sequence = 0
        self.in_flight: list[ProducerBatch] = []
        self.unresolved: list[ProducerBatch] = []
        self.on_wire = 0
        self.proven_leader: Leadership | None = None
        self.proven_until = 0.0
        self.anchor_sequence = 0
        self.anchor_offset = NO_OFFSET
        self.needs_new_epoch = False
        self.has_gap = False

    # Its place ------------------------------------------------------------------------------------

    def queue_changed(self, now: float) -> None:
        """A caller has opened or filled a batch, or waits for one."""
        if self.place is EMPTY or self.place is LINGERING:
            self.find_place(now)
        elif self.broker is not None:
            self._partitions.changes += 1
            self.queue.grows_to = self.broker.window.size

    def find_place(self, now: float) -> None:
        """Move to the place of the oldest batch: the sender has changed it, or a time has come."""
        partitions, queue = self._partitions, self.queue
        partitions.changes += 1
        batch, full = queue.head()
        if batch is None:
            self.move(EMPTY)
            return
        if self._found_in != partitions.snapshots:
            self._find_leader()
        broker, place = self.broker, READY
        when = batch.created_at + partitions.delivery_timeout
        if when < self.due:
            partitions.deadlines.set(self, when)
        if broker is None:
            self.move(LEADERLESS)
            partitions.metadata.used({self.tp.topic: now})
            partitions.metadata.request_update()
            return
        queue.grows_to = broker.window.size
        if batch.attempts:
            # A new leader has nothing to do with the old one's trouble (KIP-951).
            before = batch.attempted_leader
            if batch.retry_at > now and (before is None or before == self.leader):
                place, self._goes_on_at = BACKING_OFF, batch.retry_at
        elif not (full or batch.delivery.awaited or partitions.expedited()):
            self._goes_on_at = batch.created_at + queue.linger
            if self._goes_on_at > now:
                place = LINGERING
        self.move(place)
        if place is not READY and self._goes_on_at < self.due:
            partitions.deadlines.set(self, self._goes_on_at)

    def move(self, place: Place) -> None:
        """Leave the present place, and enter ``place``."""
        before, partitions, broker = self.place, self._partitions, self.broker
        if before is place:
            return
        if before is READY and broker is not None:
            del broker.ready[self]
            if not broker.ready:
                del partitions.ready[broker]
        elif before is EMPTY:
            self._queues[self.tp.partition] = self.queue
        elif before is LINGERING:
            del partitions.lingering[self]
        self.place = place
        if place is READY and broker is not None:
            broker.ready[self] = partitions.ready[broker] = None
        elif place is EMPTY:
            del self._queues[self.tp.partition]
        elif place is LINGERING:
            partitions.lingering[self] = None

    def _find_leader(self) -> None:
        partitions = self._partitions
        self._found_in = partitions.snapshots
        leader = partitions.snapshot.leadership(self.tp)
        broker = None if leader is None else partitions.network.broker(leader.leader_id)
        if leader != self.leader or broker is not self.broker:
            if self.place is READY:
                self.move(WAITING)  # it leaves the list of the former broker; find_place follows
            self.leader, self.broker = leader, broker

    def follow(self, now: float) -> None:
        """There is a new snapshot, and a batch is queued."""
        before = self.leader, self.broker
        self._find_leader()
        if before != (self.leader, self.broker) or self.place is LEADERLESS:
            self.find_place(now)

    def go_on(self) -> None:
        """``may_send`` may return True now."""
        if self.place is WAITING:
            self.move(READY)

    # What happens to it by time -------------------------------------------------------------------

    def fire(self, now: float) -> None:
        """A time has come: end expired batches, and leave a linger or back-off that is over."""
        for batch in sorted(self._take_late(now), key=place_in_order):
            self.expire(batch, now)
        if self.place is LINGERING or self.place is BACKING_OFF:
            self.find_place(now)
        when = self._oldest() + self._partitions.delivery_timeout
        if when < self.due:
            self._partitions.deadlines.set(self, when)

    def unanswered(self) -> list[ProducerBatch]:
        """The batches on the wire or unresolved, except those that have an outcome."""
        sent = [batch for batch in self.in_flight if batch.on_wire] if self.on_wire else []
        return [batch for batch in [*sent, *self.unresolved] if not batch.delivery.done]

    def _oldest(self) -> float:
        """When the oldest batch without an outcome was created, or infinity."""
        oldest = min((batch.created_at for batch in self.unanswered()), default=FOREVER)
        queued = self.queue.oldest
        return oldest if queued is None else min(oldest, queued.created_at)

    def _take_late(self, now: float) -> list[ProducerBatch]:
        """The batches whose delivery timeout has passed. Those that are queued are removed."""
        limit = self._partitions.delivery_timeout
        late = [batch for batch in self.unanswered() if batch.created_at + limit <= now]
        queued: list[ProducerBatch] = []
        while (oldest := self.queue.oldest) is not None and oldest.created_at + limit <= now:
            queued += self.queue.take_expired(oldest.created_at)
        if queued:
            late += self._withdrawn(queued)
            self.find_place(now)
        return late

    # The queue ------------------------------------------------------------------------------------

    def take(self, batch: ProducerBatch, room: int) -> bool:
        """Remove the oldest batch from the queue, complete its bytes, and give it its sequence.

        Returns False if a caller is compressing it, or if it needs more than ``room``. It then
        stays in the queue.
        """
        queue = self.queue
        codec: int = queue.settings.codec
        if not codec:
            queue.close_head()
        elif not self._partitions.accumulator.compress(batch, queue):
            return False
        if batch.size > room:
            return False  # before it gets a sequence: nothing may wait with one
        self.assign(batch)
        if not batch.is_closed:
            batch.close()
            if codec:
                self._partitions.accumulator.sealed(batch)
        queue.take_head()
        return True

    def put_back(self, batch: ProducerBatch, now: float) -> None:
        """Queue a batch for another attempt, before all batches that were never sent."""
        batch.retry_at = batch.last_attempt_at
        if not isinstance(batch.last_error, ConnectionLost):  # the next connection has a back-off
            batch.retry_at += self._partitions.retry_backoff.delay(batch.attempts)
        self.queue.put_back(batch)
        self.find_place(now)

    def split(self, batch: ProducerBatch, count: int, now: float) -> list[ProducerBatch]:
        """Replace ``batch``, which is off the wire, by smaller ones with its sequence numbers."""
        self._partitions.metrics.batches_split += 1
        parts = self._partitions.accumulator.parts(batch, self.queue, count)
        index = self.in_flight.index(batch)
        self.in_flight[index : index + 1] = parts
        for part in parts:
            part.partition, part.in_flight = self, True
            self.put_back(part, now)
        return parts

    def take_queued(self, now: float) -> list[ProducerBatch]:
        """Remove all batches from the queue."""
        taken = self._withdrawn(self.queue.take_all())
        self.find_place(now)
        return taken

    def _withdrawn(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        for batch in batches:
            batch.partition = self
        return self._partitions.accumulator.withdrawn(batches)

    # Before a batch leaves ------------------------------------------------------------------------

    def may_send(self, batch: ProducerBatch, now: float) -> bool:
        """True if ``batch``, the oldest in the queue, may be sent to the leader now."""
        partitions = self._partitions
        identity, idempotent = partitions.identity, partitions.idempotent
        producer, transaction = identity.producer, partitions.transaction
        if identity.fatal is not None:
            return False
        if (transaction is not None and not transaction.admits(self.tp)) or self.needs_new_epoch:
            return False  # renumber() comes first
        in_flight = self.in_flight
        if batch.in_flight:
            return self.on_wire == 0 and in_flight[0] is batch
        if self.has_gap or (in_flight and self.producer != producer):
            return False  # batches under the old epoch come first, then renumber()
        if idempotent and in_flight:
            oldest = in_flight[0]
            if oldest.maybe_written or oldest.overtaken:
                # It is repeated, or will be, and the broker knows its last five batches only. How a
                # batch is overtaken: it leaves on a connection where no answer comes, the metadata
                # loses the broker for a moment, and batches on a new connection are acknowledged.
                return False
        proven = now < self.proven_until and self.proven_leader == self.leader
        limit = partitions.max_in_flight if proven or not idempotent else 1
        return self.on_wire < limit

    def assign(self, batch: ProducerBatch) -> None:
        """Give ``batch``, which is about to be sent, its place in the order, unless it has one."""
        if not batch.in_flight:
            batch.partition, batch.in_flight = self, True
            self.in_flight.append(batch)
        producer = self._partitions.identity.producer
        if producer is not None and not batch.has_sequence:
            if self.producer != producer:
                self._start_over()
            self._number(batch)

    def _start_over(self) -> None:
        """Continue under the present producer id and epoch."""
        self.producer, self.next_sequence = self._partitions.identity.producer, 0
        self.proven_leader = None
        self.anchor_offset = NO_OFFSET
        self.has_gap = False

    def _number(self, batch: ProducerBatch) -> None:
        if self.producer is None:
            raise AssertionError("a sequence needs a producer id")
        batch.give_sequence(self.producer, self.next_sequence)
        batch.overtaken = False
        self.next_sequence = (self.next_sequence + batch.record_count) & LAST_SEQUENCE

    def begin_attempt(self, batch: ProducerBatch, now: float) -> None:
        """A request with ``batch`` is about to be sent."""
        partitions = self._partitions
        batch.attempt(now, self.leader)
        partitions.used[self.tp.topic] = now
        self.on_wire += 1
        partitions.on_wire += 1

    # After an attempt -----------------------------------------------------------------------------

    def off_wire(self, batch: ProducerBatch) -> bool:
        """The request with ``batch`` has ended. False if the batch was not on the wire."""
        if not batch.on_wire:
            return False
        batch.on_wire = False
        self.on_wire -= 1
        self._partitions.on_wire -= 1
        self.go_on()
        return True

    def is_provable(self, batch: ProducerBatch) -> bool:
        """True if the acknowledgement of a later batch can prove that ``batch`` is stored.

        A later batch must have been sent, and the end of the log before ``batch`` must be known.
        The log must still be the same one: a topic that was created again has a new log, which
        accepts any sequence as its first. A later batch may then have overtaken ``batch``.
        """
        if not self.in_flight or self.in_flight[-1] is batch or batch.overtaken:
            return False
        if self.anchor_offset < 0 or self.proven_leader is None:
            return False
        return batch.attempted_leader is not None and not self._is_of_a_new_log(batch)

    def leaves_room(self, batch: ProducerBatch, base_offset: int) -> bool:
        """True if all batches before ``batch`` can be in the log before ``base_offset``.

        Between the last acknowledged batch and ``batch``, there must be as many offsets as sequence
        numbers. A log that was truncated, and continued with ``batch``, has fewer.
        """
        if self.anchor_offset < 0 or base_offset < 0:
            return False
        numbers = (batch.base_sequence - self.anchor_sequence) & LAST_SEQUENCE
        return base_offset - self.anchor_offset >= numbers

    def stored(self, batch: ProducerBatch, base_offset: int, append_time: int, now: float) -> None:
        """The leader has stored ``batch`` at ``base_offset``, or at -1 if it did not say where."""
        if self.unresolved:
            self._resolve_by(batch, base_offset, now)
        self.off_wire(batch)
        if not batch.overtaken:
            records = batch.record_count
            known = 0 <= base_offset <= 0x7FFFFFFFFFFFFFFF - records  # else no possible offset
            self.anchor_sequence = (batch.base_sequence + records) & LAST_SEQUENCE
            self.anchor_offset = base_offset + records if known else NO_OFFSET
        elif self._partitions.transaction is None and self._is_of_a_new_log(batch):
            # The batch that overtook it is in the log of a deleted topic. The new log expects the
            # sequence behind this batch, and that sequence was used before.
            self._open_gap(batch)
        self.proven_leader = batch.attempted_leader
        self.proven_until = batch.last_attempt_at + PROOF_LASTS
        in_flight = self.in_flight
        if in_flight and in_flight[0] is batch:
            del in_flight[0]
        elif batch in in_flight:
            for earlier in in_flight[: in_flight.index(batch)]:
                earlier.overtaken = True
            in_flight.remove(batch)
        self._succeed(batch, base_offset, append_time)

    def _resolve_by(self, acknowledged: ProducerBatch, base_offset: int, now: float) -> None:
        """Settle the unresolved batches: ``acknowledged`` is the first batch after them."""
        roomy = self.leaves_room(acknowledged, base_offset)
        unresolved, self.unresolved = self.unresolved, []
        for batch in unresolved:
            if roomy and proves(acknowledged, batch):
                self._succeed(batch, -1, -1)
            else:
                self._leave_unresolved(batch, now)

    def _succeed(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        partitions, ended_before = self._partitions, batch.delivery.done
        if not ended_before:
            partitions.metrics.acknowledged(batch)
        batch.release()
        if not ended_before:
            batch.delivery.succeed(base_offset, append_time)
            # Last: a flush that looks in between must find the batch, and wait for its callbacks.
            partitions.accumulator.incomplete.discard(batch)

    def attempt_failed(
        self, batch: ProducerBatch, error: KprodError, now: float, *, maybe: bool = False
    ) -> None:
        """An attempt ended in ``error``.

        ``maybe``: the broker may have stored the batch nevertheless.
        """
        was_on_wire = self.off_wire(batch)
        repeated = batch.attempts > 1 or batch.maybe_written
        batch.maybe_written = batch.maybe_written or maybe or error.persisted is Persisted.MAYBE
        batch.failed(error)
        if error.refreshes_metadata:
            self._partitions.metadata.request_update()
        if batch.delivery.done:
            if was_on_wire:  # its time ran out on the wire, or the loop crashed
                self.take_out(batch)
                batch.release()
            return
        if batch not in self.in_flight:
            raise AssertionError(f"the end of {batch!r} had begun before")
        self._go_on_after(batch, error, now, repeated=repeated)

    def _go_on_after(
        self, batch: ProducerBatch, error: KprodError, now: float, *, repeated: bool
    ) -> None:
        """Send a batch whose attempt ended in ``error`` again, or give it up.

        This follows how Kafka's ``Sender`` and ``TransactionManager`` handle Produce responses of
        the idempotent producer, but one rule is stricter. A batch that *may* be in the log is never
        sent again under a new epoch, because the broker could not distinguish the copy from a new
        batch. ``repeated``: it was sent before this attempt, or is part of a split batch that may
        be stored.
        """
        code = error.code if isinstance(error, BrokerError) else None
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.has_sequence:
            # An earlier attempt was stored and its answer was lost; unless there was none.
            if repeated:
                self.stored(batch, -1, -1, now)
            else:
                self._refused(batch, error, now)
        elif self._out_of_time(batch, now):
            if self.in_flight[0] is batch:
                self._refused(batch, error, now)
            else:  # after the earlier batches, whose time is over as well
                self.put_back(batch, now)
        elif code in TOO_LARGE and batch.record_count > 1:
            self._partitions.accumulator.refused_as_too_large(batch, self.queue)
            self.split(batch, 2, now)
        elif not self._has_attempts(batch, code):
            self._refused(batch, error, now)
        elif code in SEQUENCE_ERRORS and batch.has_sequence:
            # If it is this code, the broker knows the producer and has a sequence to compare with.
            known = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self._out_of_sequence(batch, error, now, known=known)
        elif error.retriable:
            self._retry(batch, now)
        else:
            self._refused(batch, error, now)

    def _has_attempts(self, batch: ProducerBatch, code: int | None) -> bool:
        limit = self._partitions.retries
        if code == ErrorCode.CORRUPT_MESSAGE:
            limit = min(limit, CORRUPT_ATTEMPTS - 1)
        return batch.attempts <= limit

    def _out_of_sequence(
        self, batch: ProducerBatch, error: KprodError, now: float, *, known: bool
    ) -> None:
        """The broker has refused the sequence or the epoch of ``batch``."""
        if self.in_flight[0] is not batch:
            self._retry(batch, now)  # an earlier one is on its way; after it the sequence will fit
        elif not batch.maybe_written and self._partitions.transaction is None:
            self._resequence(batch, now)
        elif batch.maybe_written and known and self.is_provable(batch):
            self.take_out(batch)
            self.unresolved.append(batch)
        else:
            self._refused(batch, error, now)

    def _retry(self, batch: ProducerBatch, now: float) -> None:
        batch.last_attempt_at = now
        self._partitions.metrics.retried(batch)
        self.put_back(batch, now)

    def _resequence(self, batch: ProducerBatch, now: float) -> None:
        """Continue under a new epoch: the broker has refused a sequence for good."""
        self._end_unresolved(now)
        self.want_new_epoch()
        self._retry(batch, now)

    def _refused(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """The error is final for this batch, or for all batches."""
        partitions = self._partitions
        code = error.code if isinstance(error, BrokerError) else None
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.maybe_written = True
            error.add_note(NEVER_SENT_BEFORE)
            log.error("%r was taken for a repetition; %s", batch, NEVER_SENT_BEFORE)
        elif partitions.transaction is not None:
            pass  # ``record_failed`` decides what becomes of the transaction
        elif code in FATAL and partitions.idempotent:
            fatal = BrokerError(code, f"{batch.tp}, and with it everything else")
            fatal.add_note(MAKE_ANEW)
            partitions.identity.fatal = fatal
            error.add_note(MAKE_ANEW)
        self.give_up(batch, error, now)

    def _out_of_time(self, batch: ProducerBatch, now: float) -> bool:
        return now >= batch.created_at + self._partitions.delivery_timeout

    # A batch has ended ----------------------------------------------------------------------------

    def expire(self, batch: ProducerBatch, now: float) -> None:
        """End a batch whose delivery timeout has passed: on the wire, unresolved, or queued."""
        if batch.on_wire:
            state = "its last attempt is unanswered"
        elif batch in self.unresolved:
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

    def give_up(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        """End a batch with ``error``. It is neither queued nor on the wire."""
        final = self._final(batch, error, now)
        if batch in self.unresolved:
            self.unresolved.remove(batch)
        self.take_out(batch)
        if not self.in_flight:
            self._end_unresolved(now)
        batch.release()
        self._fail(batch, final, now)

    def _end_unresolved(self, now: float) -> None:
        """Fail the unresolved batches: no later batch will settle them."""
        unresolved, self.unresolved = self.unresolved, []
        for batch in unresolved:
            self._leave_unresolved(batch, now)

    def _leave_unresolved(self, batch: ProducerBatch, now: float) -> None:
        batch.release()
        self._fail(batch, unknown_fate(batch), now)

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
        partitions = self._partitions
        cause = batch.last_error or partitions.metadata.last_error(self.tp.topic)
        if cause is None and partitions.needs_producer_id:
            cause = partitions.identity.last_error
        if cause is None:
            leaderless = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self.tp} has no leader")
            cause = leaderless if self.broker is None else self.broker.last_error(now)
        return expired(batch, partitions.delivery_timeout, state, cause)

    def _fail(self, batch: ProducerBatch, error: KprodError, now: float) -> None:
        partitions = self._partitions
        if not batch.delivery.done:  # else ``disown`` has ended and counted it
            partitions.metrics.failed(batch)
        if partitions.transaction is not None:
            partitions.transaction.record_failed(error)
        if not batch.delivery.is_observed():
            partitions.network.log.unobserved(self.tp.topic, batch.record_count, error, now)
        errors = errors_by_record(error, self.tp, batch.record_count)
        if errors:
            batch.delivery.fail_each(errors)
        else:
            batch.delivery.fail(error)
        partitions.accumulator.incomplete.discard(batch)

    # Sequence numbers -----------------------------------------------------------------------------

    def take_out(self, batch: ProducerBatch) -> None:
        """``batch`` has its outcome, or the broker will say no more about it."""
        self._open_gap(batch)
        if self._partitions.transaction is not None and batch in self.in_flight:
            self._partitions.transaction.sequence_lost()
        if batch in self.in_flight:
            self.in_flight.remove(batch)
            self.go_on()

    def _open_gap(self, batch: ProducerBatch) -> None:
        """Let the next batch start a new epoch, if no batch was sent after ``batch``.

        No answer will show which sequence the broker expects. If the next batch kept the old epoch,
        and was repeated after a lost answer, the broker might refuse it as out of sequence. It
        would then fail, although it may be stored.
        """
        if self._partitions.idempotent and self.in_flight and self.in_flight[-1] is batch:
            self.has_gap = True
            self._partitions.awaiting_epoch[self] = None

    def _is_of_a_new_log(self, batch: ProducerBatch) -> bool:
        """True if the topic was created again after the last acknowledgement."""
        before, now = self.proven_leader, batch.attempted_leader
        return before is not None and now is not None and before.topic_id != now.topic_id

    # A new epoch ----------------------------------------------------------------------------------

    def want_new_epoch(self) -> None:
        """The broker has refused a sequence for good: continue under a new epoch."""
        self.needs_new_epoch = True
        self._partitions.awaiting_epoch[self] = None

    def renumber(self, now: float) -> None:
        """Number the batches in flight again, under the present epoch. None is on the wire.

        Those that may be in the log fail.
        """
        doomed = [batch for batch in self.in_flight if batch.maybe_written]
        self.in_flight = [batch for batch in self.in_flight if not batch.maybe_written]
        self._start_over()
        self.needs_new_epoch = False
        for batch in self.in_flight:
            self._number(batch)
        for batch in doomed:
            self.queue.remove(batch)
        if doomed:
            self.find_place(now)
        self.go_on()
        for batch in doomed:
            self.give_up(batch, unknown_fate(batch), now)
