"""Broken sequences and queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import ClusterSnapshot, Leadership
from kprod.errors import BrokerError, KprodError
from kprod.sender.retry import SEQUENCE_ERRORS, Attempt, Verdict
from kprod.sender.sequences import Sequences
from kprod.types import TopicPartition
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue

Swap = tuple[str, Callable[[Any], Any]]
Judge = Callable[[KprodError, Attempt], Verdict]


def resends_maybe(_real: type[Sequences]) -> type[Sequences]:
    """Kafka's clients do so after OUT_OF_ORDER; Redpanda#3039 made duplicates of it."""

    class Broken(Sequences):
        def resequence(self) -> list[ProducerBatch]:
            return _without_doubt(self, super().resequence)

    return Broken


def _without_doubt(
    sequences: Sequences, act: Callable[[], list[ProducerBatch]]
) -> list[ProducerBatch]:
    """``act`` as if everything were known of every batch."""
    doubtful = [
        batch
        for state in sequences._partitions.values()
        for batch in state.in_flight
        if batch.maybe_written
    ]
    for batch in doubtful:
        batch.maybe_written = False
    outcome = act()
    for batch in doubtful:
        batch.maybe_written = True
    return outcome


def resequences_maybe(real: Judge) -> Judge:
    """The verdict that goes with it."""

    def judged(error: KprodError, attempt: Attempt) -> Verdict:
        refused = isinstance(error, BrokerError) and error.code in SEQUENCE_ERRORS
        return real(error, replace(attempt, maybe_written=False) if refused else attempt)

    return judged


def bumps_all(_real: type[Sequences]) -> type[Sequences]:
    """librdkafka#4953: what may be stored in another partition is sent again."""

    class Broken(Sequences):
        def resequence(self) -> list[ProducerBatch]:
            states = self._partitions
            if any(state.needs_new_epoch for state in states.values()):
                for tp, state in states.items():
                    state.needs_new_epoch = True
                    self._awaiting_epoch[tp] = None
            return _without_doubt(self, super().resequence)

    return Broken


def renumbers(_real: type[Sequences]) -> type[Sequences]:
    """librdkafka#4736, franz-go#1217: the retry is another batch to the broker."""

    class Broken(Sequences):
        def assign(self, batch: ProducerBatch) -> None:
            state = self._of(batch.tp)
            if batch.attempts and state.producer is not None:
                self._number(state, batch)
            super().assign(batch)

    return Broken


def skips_proof(_real: type[Sequences]) -> type[Sequences]:
    """KAFKA-14359: a broker without state accepts the second batch first."""

    class Broken(Sequences):
        def admits(self, batch: ProducerBatch, leader: Leadership) -> bool:
            self._of(batch.tp).proven_leader = leader
            return super().admits(batch, leader)

    return Broken


def overtakes(_real: type[Sequences]) -> type[Sequences]:
    """librdkafka#1092, sarama#2619: retries do not wait for their elders."""

    class Broken(Sequences):
        def admits(self, batch: ProducerBatch, leader: Leadership) -> bool:
            if batch.attempts and not self._of(batch.tp).needs_new_epoch:
                return True
            return super().admits(batch, leader)

    return Broken


def keeps_numbers(_real: type[Sequences]) -> type[Sequences]:
    """KAFKA-12152: a new epoch has to start from 0."""

    class Broken(Sequences):
        def assign(self, batch: ProducerBatch) -> None:
            state = self._of(batch.tp)
            if state.producer is not None and state.producer != self.identity.producer:
                state.producer = self.identity.producer
            super().assign(batch)

    return Broken


def trusts_cut_logs(_real: type[Sequences]) -> type[Sequences]:
    """A log that has lost everything takes a later batch, and that proves the earlier ones."""

    class Broken(Sequences):
        def leaves_room(self, batch: ProducerBatch, base_offset: int) -> bool:
            return True

    return Broken


def trusts_namesakes(_real: type[Metadata]) -> type[Metadata]:
    """A topic made anew with the same leader epoch counts as the one that has acknowledged."""

    class Snapshot(ClusterSnapshot):
        def leadership(self, tp: TopicPartition) -> Leadership | None:
            found = super().leadership(tp)
            return None if found is None else found._replace(topic_id=None)

    class Broken(Metadata):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "snapshot":
                value = Snapshot(value.brokers, value.topics, value.cluster_id)
            super().__setattr__(name, value)

    return Broken


def trusts_for_ever(_real: float) -> float:
    """KIP-854: a broker may have forgotten an idle producer, and accept any first batch."""
    return float("inf")


def put_first(queue: PartitionQueue, batch: ProducerBatch) -> None:
    """Before all others: as one that has never left."""
    order, batch.drain_order = batch.drain_order, None
    PartitionQueue.put_back(queue, batch)
    batch.drain_order = order


def reverses(_real: type[PartitionQueue]) -> type[PartitionQueue]:
    """Each batch that comes back goes before those that came back earlier."""

    class Broken(PartitionQueue):
        def put_back(self, batch: ProducerBatch) -> None:
            put_first(self, batch)

    return Broken


def appends(_real: type[PartitionQueue]) -> type[PartitionQueue]:
    """librdkafka#1092: the retry queues behind newer records."""

    class Broken(PartitionQueue):
        def put_back(self, batch: ProducerBatch) -> None:
            waiting = [self.take_head() for _ in range(self.depth)]
            for each in (batch, *reversed(waiting)):
                put_first(self, each)

    return Broken


def forgets_missing_topics(decode: str, sequences: str) -> tuple[Swap, ...]:
    """librdkafka before 1.9.0: silent loss, the new records look like old ones."""
    missing: set[str] = set()

    def watch(real: Callable[..., Any]) -> Callable[..., Any]:
        def decoded(*answer: Any) -> Any:
            reply = real(*answer)
            missing.update(topic.name for topic in reply.topics if topic.error_code)
            return reply

        return decoded

    def forget(_real: type[Sequences]) -> type[Sequences]:
        class Broken(Sequences):
            def admits(self, batch: ProducerBatch, leader: Leadership) -> bool:
                if batch.tp.topic in missing and not self._of(batch.tp).in_flight:
                    missing.discard(batch.tp.topic)
                    self._partitions.pop(batch.tp, None)
                    batch.sequences = None
                return super().admits(batch, leader)

        return Broken

    return ((decode, watch), (sequences, forget))
