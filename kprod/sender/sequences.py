"""Producer id, epochs, sequence numbers: retries exactly once, in order (KIP-98, KIP-360).

One ``PartitionSequence`` per partition. Its rules:

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

from collections.abc import Iterable, Sequence
from typing import Protocol

from kprod.cluster.snapshot import Leadership
from kprod.errors import KprodError
from kprod.types import ProducerId, TopicPartition
from kprod_ext.batch import ProducerBatch

NO_OFFSET = -1
LAST_EPOCH = 2**15 - 1
PROOF_LASTS = 60.0
"""Seconds; far less than the time for which brokers remember a silent producer."""


def advance(sequence: int, records: int) -> int:
    """The sequence ``records`` later, or earlier; after 2147483647 comes 0."""
    return (sequence + records) & 0x7FFFFFFF


class ProducerIdentity:
    """The producer id and epoch that batches carry now, None before brokers gave one.

    ``fatal`` is the reason why nothing may be sent any more, ever; ``trouble`` the reason why no id
    is there yet, as far as a broker or a connection has said. Thread: the sender's; any may read
    ``fatal``.
    """

    __slots__ = ("fatal", "producer", "trouble")

    def __init__(self) -> None:
        self.producer: ProducerId | None = None
        self.fatal: KprodError | None = None
        self.trouble: KprodError | None = None


class Transaction(Protocol):
    """The transaction that the records of a transactional producer are part of."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def implicit(self) -> bool:
        """True when brokers add partitions to the transaction themselves (KIP-890)."""

    def may_send(self, tp: TopicPartition) -> bool:
        """True when a batch of ``tp`` may leave."""

    def take_reopened(self) -> Iterable[TopicPartition]:
        """The partitions for which ``may_send`` said no, and may say yes now."""

    def sequence_lost(self) -> None:
        """A batch ended without an acknowledgement: its sequence must not be used again."""

    def record_failed(self, error: KprodError) -> None:
        """Records ended in ``error``, before any caller was told."""


class PartitionSequence:
    """Where one partition stands.

    ``in_flight``: batches that were sent and have no outcome, in sequence order. Those of
    ``unresolved_batches`` are not among them: they are not sent again, and nothing waits for them.
    ``anchor_sequence`` and ``anchor_offset``: right after the last acknowledged batch; the offset
    is -1 when it is not known. ``has_gap``: the last sequence that was used may not be in the log.
    ``refused``: ``admits`` said no, and nothing has changed since.
    """

    __slots__ = (
        "anchor_offset",
        "anchor_sequence",
        "has_gap",
        "in_flight",
        "needs_new_epoch",
        "next_sequence",
        "on_wire",
        "producer",
        "proven_leader",
        "proven_until",
        "refused",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.producer: ProducerId | None = None
        self.next_sequence = 0
        self.in_flight: list[ProducerBatch] = []
        self.on_wire = 0
        self.proven_leader: Leadership | None = None
        self.proven_until = 0.0
        self.anchor_sequence = 0
        self.anchor_offset = NO_OFFSET
        self.needs_new_epoch = False
        self.has_gap = False
        self.refused = False


class Sequences:
    """The producer's identity and the state of every partition it wrote to.

    Thread: the sender's only.
    """

    def __init__(
        self,
        *,
        idempotent: bool,
        max_in_flight: int,
        identity: ProducerIdentity | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self.idempotent = idempotent
        self.identity = identity or ProducerIdentity()
        self.transaction = transaction
        """Of a transactional producer: its coordinator alone gives epochs."""
        self._max_in_flight = max_in_flight
        self._partitions: dict[TopicPartition, PartitionSequence] = {}
        self._awaiting_epoch: dict[TopicPartition, None] = {}
        self._changed: list[TopicPartition] = []

    @property
    def needs_producer_id(self) -> bool:
        """True when nothing can be sent before an InitProducerId request was answered."""
        return self.idempotent and self.identity.producer is None

    def _of(self, tp: TopicPartition) -> PartitionSequence:
        found = self._partitions.get(tp)
        if found is None:
            found = self._partitions[tp] = PartitionSequence(tp)
        return found

    def _of_batch(self, batch: ProducerBatch) -> PartitionSequence:
        """As ``_of``; from ``assign`` on ``batch.sequences`` has it, without a look into a dict."""
        state: PartitionSequence = batch.sequences or self._of(batch.tp)
        batch.sequences = state
        return state

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions without batches.

        A broker may still know their sequences of the present epoch, and would take a batch that
        begins anew for the repetition of an old one. So a new epoch begins for all partitions.
        """
        idle: list[PartitionSequence] = []
        known = False  # by a broker, under the present epoch
        for tp in partitions:
            state = self._partitions.get(tp)
            if state is not None and not state.in_flight and not state.on_wire:
                idle.append(state)
                known = known or state.producer == self.identity.producer
        if known and self.transaction is not None:
            return  # only the coordinator gives epochs: partitions stay under the present one
        if known:
            self._bump_epoch()  # first: if there is no memory for it, nothing is forgotten
        for state in idle:
            del self._partitions[state.tp]
            self._awaiting_epoch.pop(state.tp, None)
        self._partitions = dict(self._partitions)  # a dict never shrinks by itself

    # Before a batch leaves (DrainGate) ------------------------------------------------------------

    def admits(self, batch: ProducerBatch, leader: Leadership) -> bool:
        """True when ``batch``, the oldest queued of its partition, may go to ``leader`` now."""
        state = self._of_batch(batch)
        if self._admits(state, batch, leader):
            return True
        state.refused = True
        return False

    def _admits(self, state: PartitionSequence, batch: ProducerBatch, leader: Leadership) -> bool:
        producer = self.identity.producer
        if (self.idempotent and producer is None) or self.identity.fatal is not None:
            return False
        closed = self.transaction is not None and not self.transaction.may_send(batch.tp)
        if closed or state.needs_new_epoch:
            return False  # resequence() comes first
        if batch.in_line:
            return state.on_wire == 0 and state.in_flight[0] is batch
        if state.has_gap or (state.in_flight and state.producer != producer):
            return False  # batches under the old epoch come first, then resequence()
        if self.idempotent and state.in_flight:
            oldest = state.in_flight[0]
            if oldest.maybe_written or oldest.overtaken:
                # It is repeated, or will be, and the broker knows its last five batches only. How a
                # batch is overtaken: it leaves on a connection where no answer comes, the metadata
                # loses the broker for a moment, and batches on a new connection are acknowledged.
                return False
        proven = batch.created_at < state.proven_until and state.proven_leader == leader
        limit = self._max_in_flight if proven or not self.idempotent else 1
        return state.on_wire < limit

    def take_changed(self) -> list[TopicPartition]:
        """The partitions that ``admits`` has refused, and may admit now."""
        if self.transaction is not None:
            for tp in self.transaction.take_reopened():
                self._note_change(self._of(tp))
        changed = self._changed
        if changed:
            self._changed = []
        return changed

    def _note_change(self, state: PartitionSequence) -> None:
        """``admits`` may admit a batch of this partition that it has refused."""
        if state.refused:
            state.refused = False
            self._changed.append(state.tp)

    def assign(self, batch: ProducerBatch) -> None:
        """Give ``batch``, which is about to leave, a place in the order, unless it has one."""
        state = self._of_batch(batch)
        if not batch.in_line:
            state.in_flight.append(batch)
            batch.in_line = True
        if self.identity.producer is not None and not batch.has_sequence:
            if state.producer != self.identity.producer:
                self._start_over(state)
            self._number(state, batch)

    def left(self, batch: ProducerBatch) -> None:
        """``batch`` is part of a request now, until ``off_wire``."""
        batch.sequences.on_wire += 1

    def _start_over(self, state: PartitionSequence) -> None:
        """The partition goes on under the present producer id and epoch."""
        state.producer, state.next_sequence = self.identity.producer, 0
        state.proven_leader = None
        state.anchor_offset = NO_OFFSET
        state.has_gap = False

    def _number(self, state: PartitionSequence, batch: ProducerBatch) -> None:
        if state.producer is None:
            raise AssertionError("a sequence needs a producer id")
        batch.give_sequence(state.producer, state.next_sequence)
        batch.overtaken = False
        state.next_sequence = advance(state.next_sequence, batch.record_count)

    # After an attempt -----------------------------------------------------------------------------

    def off_wire(self, batch: ProducerBatch) -> None:
        """The request that carried ``batch`` has ended."""
        state = batch.sequences
        state.on_wire -= 1
        batch.on_wire = False
        self._note_change(state)

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """True when no earlier batch of the partition is without an outcome."""
        in_flight = self._of_batch(batch).in_flight
        return bool(in_flight) and in_flight[0] is batch

    def is_provable(self, batch: ProducerBatch) -> bool:
        """True when a later batch, if it is acknowledged, proves that ``batch`` is stored.

        A later batch was sent, and its log has no gap before it. The log has none if it is the one
        that ended just before ``batch``. A topic that was made anew in between has another log,
        which takes any sequence as its first: a batch on its way may have overtaken ``batch``.
        """
        state = self._of_batch(batch)
        sent = len(state.in_flight)
        if not sent or state.in_flight[sent - 1] is batch or batch.overtaken:
            return False
        if state.anchor_offset < 0 or state.proven_leader is None:
            return False
        return batch.attempted_leader is not None and not self._is_of_a_new_log(state, batch)

    def leaves_room(self, batch: ProducerBatch, base_offset: int) -> bool:
        """True when all batches before ``batch`` may lie before ``base_offset``.

        Behind the last acknowledged batch there must be as many offsets as sequence numbers. A log
        that was cut short in between and began anew with ``batch`` has fewer.
        """
        state = self._of_batch(batch)
        if state.anchor_offset < 0 or base_offset < 0:
            return False
        numbers = advance(batch.base_sequence, -state.anchor_sequence)
        return base_offset - state.anchor_offset >= numbers

    def awaits(self, batch: ProducerBatch) -> bool:
        """True when ``batch`` was sent and has no outcome."""
        return batch in self._of_batch(batch).in_flight

    def in_flight(self) -> list[ProducerBatch]:
        """The batches of all partitions that were sent and have no outcome."""
        return [batch for state in self._partitions.values() for batch in state.in_flight]

    def all_resolved(self, tp: TopicPartition) -> bool:
        """True when no batch of the partition was sent and is without an outcome."""
        return not self._of(tp).in_flight

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The leader that ``batch`` was sent to has stored it, at -1 if it did not say where."""
        state = batch.sequences
        in_new_log = batch.overtaken and self._is_of_a_new_log(state, batch)
        if in_new_log and self.transaction is None:
            # The batch that overtook it is in the log of a deleted topic. The new log expects the
            # sequence behind this batch, and that sequence was used before.
            self._open_gap(state, batch)
        if not batch.overtaken:
            records = batch.record_count
            told = 0 <= base_offset <= 0x7FFFFFFFFFFFFFFF - records  # False: not a possible offset
            state.anchor_sequence = advance(batch.base_sequence, records)
            state.anchor_offset = base_offset + records if told else NO_OFFSET
        state.proven_leader = batch.attempted_leader
        state.proven_until = batch.last_attempt_at + PROOF_LASTS
        for earlier in state.in_flight:
            if earlier is batch:
                break
            earlier.overtaken = True
        self._resolve(state, batch)

    def resolved(self, batch: ProducerBatch) -> None:
        """``batch`` has its outcome, or will get none from the broker any more."""
        state = self._of_batch(batch)
        sent = len(state.in_flight)
        self._open_gap(state, batch)
        if self.transaction is not None and sent and batch in state.in_flight:
            self.transaction.sequence_lost()
        self._resolve(state, batch)

    def _open_gap(self, state: PartitionSequence, batch: ProducerBatch) -> None:
        """The next batch starts a new epoch, if none was sent behind ``batch``.

        Nothing will tell which sequence the broker expects then. Retried after a lost answer, the
        next batch would be refused as out of sequence, and given up as maybe stored.
        """
        sent = len(state.in_flight)
        if self.idempotent and sent and state.in_flight[sent - 1] is batch:
            state.has_gap = True
            self._awaiting_epoch[batch.tp] = None

    def _is_of_a_new_log(self, state: PartitionSequence, batch: ProducerBatch) -> bool:
        """True when the topic was made anew after the last acknowledgement."""
        before, now = state.proven_leader, batch.attempted_leader
        return before is not None and now is not None and before.topic_id != now.topic_id

    def _resolve(self, state: PartitionSequence, batch: ProducerBatch) -> None:
        in_flight = state.in_flight
        if in_flight and in_flight[0] is batch:
            del in_flight[0]
        elif batch in in_flight:
            in_flight.remove(batch)
        else:
            return
        self._note_change(state)

    def was_split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """``parts`` take the place, and between them the sequence numbers, of ``batch``."""
        state = self._of_batch(batch)
        in_flight = state.in_flight
        index = in_flight.index(batch)
        in_flight[index : index + 1] = parts
        for part in parts:
            part.in_line = True
        self._note_change(state)

    def want_new_epoch(self, batch: ProducerBatch) -> None:
        """The broker refused the sequence for good: the partition goes on under a new epoch."""
        self._of_batch(batch).needs_new_epoch = True
        self._awaiting_epoch[batch.tp] = None

    def resequence(self) -> list[ProducerBatch]:
        """Renumber the partitions that wait for a new epoch and have nothing on the wire.

        Returns the batches that must fail instead, because they may be in the log.
        """
        doomed: list[ProducerBatch] = []
        for tp in list(self._awaiting_epoch):
            state = self._of(tp)
            if state.on_wire or (state.in_flight and not state.needs_new_epoch):
                continue
            if state.producer == self.identity.producer:
                if self.transaction is not None:
                    continue  # the next transaction has another epoch
                self._bump_epoch()
            if self.identity.producer is None:
                break  # the epochs of this id are used up; identity comes first
            doomed += [batch for batch in state.in_flight if batch.maybe_written]
            state.in_flight = [batch for batch in state.in_flight if not batch.maybe_written]
            self._start_over(state)
            state.needs_new_epoch = False
            del self._awaiting_epoch[tp]
            self._note_change(state)
            for batch in state.in_flight:
                self._number(state, batch)
        return doomed

    def _bump_epoch(self) -> None:
        """Take the next epoch; partitions with nothing in_flight follow when they send again."""
        known, self.identity.producer = self.identity.producer, None
        if known is not None and known.epoch < LAST_EPOCH:
            self.identity.producer = ProducerId(known.producer_id, known.epoch + 1)
