"""One partition as the sender knows it: queue, leader, place, sequence numbers, batches sent.

Its rules, which are exactly once and in order (KIP-98, KIP-360):

* At most one batch on the wire until the partition's present leader has acknowledged one: a broker
  that knows nothing of this producer accepts *any* first sequence, so a second batch could
  overtake a refused first one (KAFKA-14359). Then at most ``max_in_flight``. Brokers forget idle
  producers (KIP-854): an acknowledgement a minute ago proves nothing.
* A batch that failed goes out again only when it is the oldest without an outcome and nothing of
  the partition is on the wire.
* Until the oldest has an outcome no more than four are sent after it, whatever becomes of them: a
  broker recognises the repetition of its last five batches only.
* A new epoch is taken partition by partition, and only when nothing of the partition is on the
  wire; batches that may be in the log are failed, not sent again under it (see ``retry``).
* A batch that ends without an acknowledgement, with none sent behind it, leaves a gap: the broker
  may expect its sequence next, and would refuse the one after it. So the next batch goes under a
  new epoch, as Kafka's ``TransactionManager`` decides it for unresolved sequences.

Without idempotence the same object keeps the order of retries and the in-flight limit.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kprod.cluster.snapshot import Leadership
from kprod.errors import ConnectionLost
from kprod.types import ProducerId, TopicPartition
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue

if TYPE_CHECKING:
    from kprod.sender.partitions import PartitionSet, RequestGroup

FOREVER = float("inf")
NO_OFFSET = -1
LAST_SEQUENCE = 0x7FFFFFFF
"""After it comes 0: sums and differences of sequence numbers are cut to its bits."""
PROOF_LASTS = 60.0
"""Seconds; far less than the time for which brokers remember a silent producer."""


class Place(enum.Enum):
    """Where a partition stands, and what lets it go on.

    EMPTY: no batch is queued, until a caller opens one. READY: its oldest batch can be
    sent at once. LINGERING: until its linger is over, its oldest batch is full or awaited, or all
    batches are to leave at once. BACKING_OFF: its oldest batch has failed; until the back-off is
    over, or another broker leads the partition. WAITING: ``may_send`` said no; until an answer, a
    new epoch or the transaction allows it. LEADERLESS: until the metadata names a leader.
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
    """Everything that the sender knows of one partition. Thread: the sender's only.

    Only the sender removes batches: what callers do to a queue never changes its oldest batch,
    unless it was empty.

    ``in_flight``: batches that were sent and have no outcome, in sequence order; ``on_wire`` counts
    those that a request holds, the others are queued again. ``unresolved``: batches that may be
    stored, in sequence order, until an answer settles them. They are not in flight, for they are
    not sent again, and nothing waits for them; they keep their memory. ``anchor_sequence`` and
    ``anchor_offset``: right after the last acknowledged batch; the offset is -1 when it is not
    known. ``has_gap``: the last sequence that was used may not be in the log. ``group``: the
    partitions that it can share a request with. ``due``: see ``Deadlines``; no later than the next
    thing that happens to it by time.
    """

    __slots__ = (
        "_all",
        "_codec",
        "_found_in",
        "_goes_on_at",
        "_linger",
        "_queued",
        "anchor_offset",
        "anchor_sequence",
        "due",
        "group",
        "has_gap",
        "in_flight",
        "leader",
        "needs_new_epoch",
        "next_sequence",
        "on_wire",
        "place",
        "producer",
        "proven_leader",
        "proven_until",
        "queue",
        "tp",
        "unresolved",
    )

    def __init__(self, queue: PartitionQueue, everything: PartitionSet) -> None:
        self.tp: TopicPartition = queue.tp
        self._all = everything
        self.queue = queue
        self._linger = queue.linger
        self._codec: int = queue.settings.codec
        self._queued = everything.queued_of(self.tp.topic)
        self.place = EMPTY
        self.leader: Leadership | None = None
        self.group: RequestGroup | None = None  # None: no leader is known
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

    def noted(self, now: float) -> None:
        """A caller has opened or filled a batch, or waits for one."""
        if self.place is EMPTY or self.place is LINGERING:
            self.find_place(now)
        elif self.group is not None:
            self._all.changes += 1
            self.queue.grows_to = self.group.window.size

    def find_place(self, now: float) -> None:
        """Go where the oldest batch belongs: the sender has changed it, or a time has come."""
        everything, queue = self._all, self.queue
        everything.changes += 1
        batch, full = queue.head()
        if batch is None:
            self.move(EMPTY)
            return
        if self._found_in != everything.snapshots:
            self._find_leader()
        group, place = self.group, READY
        when = batch.created_at + everything.delivery_timeout
        if when < self.due:
            everything.deadlines.set(self, when)
        if group is None:
            self.move(LEADERLESS)
            return
        queue.grows_to = group.window.size
        if batch.attempts:
            # A new leader has nothing to do with the old one's trouble (KIP-951).
            before = batch.attempted_leader
            if batch.retry_at > now and (before is None or before == self.leader):
                place, self._goes_on_at = BACKING_OFF, batch.retry_at
        elif not (full or batch.delivery.awaited or everything.hurries()):
            self._goes_on_at = batch.created_at + self._linger
            if self._goes_on_at > now:
                place = LINGERING
        self.move(place)
        if place is not READY and self._goes_on_at < self.due:
            everything.deadlines.set(self, self._goes_on_at)

    def move(self, place: Place) -> None:  # noqa: C901  (one step for each place, twice)
        """Leave the present place for another one."""
        before, everything, group = self.place, self._all, self.group
        if before is place:
            return
        if before is READY and group is not None:
            del group.ready[self]
            if not group.ready:
                del everything.groups[group]
        elif before is EMPTY:
            self._queued[self.tp.partition] = self.queue
        elif before is LINGERING:
            del everything.lingering[self]
        elif before is LEADERLESS:
            everything.found_leader(self.tp.topic)
        self.place = place
        if place is READY and group is not None:
            group.ready[self] = everything.groups[group] = None
        elif place is EMPTY:
            del self._queued[self.tp.partition]
        elif place is LINGERING:
            everything.lingering[self] = None
        elif place is LEADERLESS:
            everything.lost_leader(self.tp.topic)

    def _find_leader(self) -> None:
        everything = self._all
        self._found_in = everything.snapshots
        self.leader = leader = everything.snapshot.leadership(self.tp)
        self.group = None
        if leader is not None:
            self.group = everything.group_of(leader.leader_id, self.queue.acks)

    def follow(self, now: float) -> None:
        """There is another snapshot, and a batch is queued."""
        before = self.leader
        if self.place is READY and self._all.snapshot.leadership(self.tp) != before:
            self.move(WAITING)  # out of the group that it is in
        self._find_leader()
        if self.leader != before:
            self.find_place(now)

    def go_on(self) -> None:
        """``may_send`` may say yes where it has said no."""
        if self.place is WAITING:
            self.move(READY)

    # What happens to it by time -------------------------------------------------------------------

    def fire(self, now: float) -> None:
        """A time has come: end what is late, and leave the linger or the back-off if it is over."""
        late = self._take_late(now)
        if late:
            self._all.expired(late, now)
        if self.place is LINGERING or self.place is BACKING_OFF:
            self.find_place(now)
        when = self._oldest() + self._all.delivery_timeout
        if when < self.due:
            self._all.deadlines.set(self, when)

    def unanswered(self) -> list[ProducerBatch]:
        """The batches on the wire or unresolved that have no outcome."""
        sent = [batch for batch in self.in_flight if batch.on_wire] if self.on_wire else []
        return [batch for batch in [*sent, *self.unresolved] if not batch.delivery.done]

    def _oldest(self) -> float:
        """When the oldest batch without an outcome was created; infinite for none."""
        oldest = min((batch.created_at for batch in self.unanswered()), default=FOREVER)
        queued = self.queue.oldest
        return oldest if queued is None else min(oldest, queued.created_at)

    def _take_late(self, now: float) -> list[ProducerBatch]:
        """The batches whose delivery time-out has come. Removes those that are queued."""
        limit = self._all.delivery_timeout
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
        """Take the oldest batch out of the queue: with its bytes, and its place in the sequence.

        False: a caller compresses it, or it takes more than ``room``. It is still queued then.
        """
        queue, codec = self.queue, self._codec
        if not codec:
            queue.close_head()
        elif not self._all.accumulator.compress(batch, queue):
            return False
        if batch.size > room:
            return False  # before it gets a sequence: nothing may wait with one
        self.assign(batch)
        if not batch.is_closed:
            batch.close()
            if codec:
                self._all.accumulator.sealed(batch)
        queue.take_head()
        return True

    def put_back(self, batch: ProducerBatch, now: float) -> None:
        """Queue a batch for another attempt, before all batches that were never sent."""
        batch.retry_at = batch.last_attempt_at
        if not isinstance(batch.last_error, ConnectionLost):  # the next connection has a back-off
            batch.retry_at += self._all.retry_backoff.delay(batch.attempts)
        self.queue.put_back(batch)
        self.find_place(now)

    def split(self, batch: ProducerBatch, count: int, now: float) -> list[ProducerBatch]:
        """Queue ``batch``, which is off the wire, as smaller ones under its numbers."""
        parts = self._all.accumulator.parts(batch, self.queue, count)
        index = self.in_flight.index(batch)
        self.in_flight[index : index + 1] = parts
        for part in parts:
            part.partition, part.in_line = self, True
            self.put_back(part, now)
        self.go_on()
        return parts

    def take_queued(self, now: float) -> list[ProducerBatch]:
        """Remove all batches from the queue."""
        taken = self._withdrawn(self.queue.take_all())
        self.find_place(now)
        return taken

    def _withdrawn(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        for batch in batches:
            batch.partition = self
        return self._all.accumulator.withdrawn(batches)

    # Before a batch leaves ------------------------------------------------------------------------

    def may_send(self, batch: ProducerBatch, now: float) -> bool:
        """True when ``batch``, the oldest in the queue, may go to the leader now."""
        everything = self._all
        identity, idempotent = everything.identity, everything.idempotent
        producer, transaction = identity.producer, everything.transaction
        if (idempotent and producer is None) or identity.fatal is not None:
            return False
        if (transaction is not None and not transaction.may_send(self.tp)) or self.needs_new_epoch:
            return False  # renumber() comes first
        in_flight = self.in_flight
        if batch.in_line:
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
        limit = everything.max_in_flight if proven or not idempotent else 1
        return self.on_wire < limit

    def assign(self, batch: ProducerBatch) -> None:
        """Give ``batch``, which is about to leave, a place in the order, unless it has one."""
        if not batch.in_line:
            batch.partition, batch.in_line = self, True
            self.in_flight.append(batch)
        producer = self._all.identity.producer
        if producer is not None and not batch.has_sequence:
            if self.producer != producer:
                self._start_over()
            self._number(batch)

    def _start_over(self) -> None:
        """Go on under the present producer id and epoch."""
        self.producer, self.next_sequence = self._all.identity.producer, 0
        self.proven_leader = None
        self.anchor_offset = NO_OFFSET
        self.has_gap = False

    def _number(self, batch: ProducerBatch) -> None:
        if self.producer is None:
            raise AssertionError("a sequence needs a producer id")
        batch.give_sequence(self.producer, self.next_sequence)
        batch.overtaken = False
        self.next_sequence = (self.next_sequence + batch.record_count) & LAST_SEQUENCE

    def sent(self, batch: ProducerBatch, now: float) -> None:
        """``batch`` is part of a request now."""
        batch.attempt(now, self.leader)
        self.on_wire += 1
        self._all.on_wire += 1

    # After an attempt -----------------------------------------------------------------------------

    def off_wire(self, batch: ProducerBatch) -> bool:
        """No request holds ``batch`` any more; False when that was so before."""
        if not batch.on_wire:
            return False
        batch.on_wire = False
        self.on_wire -= 1
        self._all.on_wire -= 1
        if self.place is WAITING:
            self.move(READY)
        return True

    def is_provable(self, batch: ProducerBatch) -> bool:
        """True when a later batch, if it is acknowledged, proves that ``batch`` is stored.

        A later batch was sent, and its log has no gap before it. The log has none if it is the one
        that ended just before ``batch``. A topic that was made anew in between has another log,
        which takes any sequence as its first: a batch on its way may have overtaken ``batch``.
        """
        if not self.in_flight or self.in_flight[-1] is batch or batch.overtaken:
            return False
        if self.anchor_offset < 0 or self.proven_leader is None:
            return False
        return batch.attempted_leader is not None and not self._is_of_a_new_log(batch)

    def leaves_room(self, batch: ProducerBatch, base_offset: int) -> bool:
        """True when all batches before ``batch`` may lie before ``base_offset``.

        Behind the last acknowledged batch there must be as many offsets as sequence numbers. A log
        that was cut short in between and began anew with ``batch`` has fewer.
        """
        if self.anchor_offset < 0 or base_offset < 0:
            return False
        numbers = (batch.base_sequence - self.anchor_sequence) & LAST_SEQUENCE
        return base_offset - self.anchor_offset >= numbers

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The leader that ``batch`` was sent to has stored it, at -1 if it did not say where."""
        self.off_wire(batch)
        if not batch.overtaken:
            records = batch.record_count
            known = 0 <= base_offset <= 0x7FFFFFFFFFFFFFFF - records  # else no possible offset
            self.anchor_sequence = (batch.base_sequence + records) & LAST_SEQUENCE
            self.anchor_offset = base_offset + records if known else NO_OFFSET
        elif self._all.transaction is None and self._is_of_a_new_log(batch):
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

    def resolved(self, batch: ProducerBatch) -> None:
        """``batch`` has its outcome, or will get none from the broker any more."""
        self._open_gap(batch)
        if self._all.transaction is not None and batch in self.in_flight:
            self._all.transaction.sequence_lost()
        if batch in self.in_flight:
            self.in_flight.remove(batch)
            self.go_on()

    def _open_gap(self, batch: ProducerBatch) -> None:
        """The next batch starts a new epoch, if none was sent behind ``batch``.

        Nothing will show which sequence the broker expects then. Retried after a lost answer, the
        next batch would be refused as out of sequence, and given up as maybe stored.
        """
        if self._all.idempotent and self.in_flight and self.in_flight[-1] is batch:
            self.has_gap = True
            self._all.awaiting_epoch[self] = None

    def _is_of_a_new_log(self, batch: ProducerBatch) -> bool:
        """True when the topic was made anew after the last acknowledgement."""
        before, now = self.proven_leader, batch.attempted_leader
        return before is not None and now is not None and before.topic_id != now.topic_id

    # A new epoch ----------------------------------------------------------------------------------

    def want_new_epoch(self) -> None:
        """The broker refused a sequence for good: go on under a new epoch."""
        self.needs_new_epoch = True
        self._all.awaiting_epoch[self] = None

    def renumber(self, now: float) -> list[ProducerBatch]:
        """Give the batches in flight, none of which is on the wire, numbers of the present epoch.

        Returns those that must fail instead, because they may be in the log, out of the queue.
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
        return doomed
