"""Broken sequences and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import ClusterSnapshot, Leadership
from kprod.errors import BrokerError, KprodError
from kprod.sender.partition import Partition
from kprod.sender.partitions import PartitionSet
from kprod.sender.retry import SEQUENCE_ERRORS
from kprod.types import TopicPartition
from kprod.wire.control import decode_metadata_response
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue


class ResendsMaybe(Partition):
    """Kafka's clients do so after OUT_OF_ORDER; Redpanda#3039 made duplicates of it."""

    def renumber(self, now: float) -> None:
        _without_doubt(self.in_flight, partial(super().renumber, now))

    def _go_on_after(
        self, batch: ProducerBatch, error: KprodError, *rest: Any, **more: Any
    ) -> None:
        refused = isinstance(error, BrokerError) and error.code in SEQUENCE_ERRORS
        act = partial(super()._go_on_after, batch, error, *rest, **more)
        _without_doubt([batch] if refused else [], act)


def _without_doubt(batches: Iterable[ProducerBatch], act: Callable[[], None]) -> None:
    """``act`` as if everything were known of every batch."""
    doubtful = [batch for batch in batches if batch.maybe_written]
    for batch in doubtful:
        batch.maybe_written = False
    act()
    for batch in doubtful:
        batch.maybe_written = True


class BumpsAll(PartitionSet):
    """librdkafka#4953: what may be stored in another partition is sent again."""

    def renumber(self, now: float) -> None:
        partitions = list(self._known.values())
        if any(each.needs_new_epoch for each in partitions):
            for each in partitions:
                each.want_new_epoch()
        sent = [batch for each in partitions for batch in [*each.in_flight, *each.unresolved]]
        _without_doubt(sent, partial(super().renumber, now))


class Renumbers(Partition):
    """librdkafka#4736, franz-go#1217: the retry is another batch to the broker."""

    def assign(self, batch: ProducerBatch) -> None:
        if batch.attempts and self.producer is not None:
            self._number(batch)
        super().assign(batch)


class SkipsProof(Partition):
    """KAFKA-14359: a broker without state accepts the second batch first."""

    def may_send(self, batch: ProducerBatch, now: float) -> bool:
        self.proven_leader = self.leader
        return super().may_send(batch, now)


class Overtakes(Partition):
    """librdkafka#1092, sarama#2619: retries do not wait for their elders."""

    def may_send(self, batch: ProducerBatch, now: float) -> bool:
        if batch.attempts and not self.needs_new_epoch:
            return True
        return super().may_send(batch, now)


class KeepsNumbers(Partition):
    """KAFKA-12152: a new epoch has to start from 0."""

    def assign(self, batch: ProducerBatch) -> None:
        present = self._all.identity.producer
        if self.producer is not None and self.producer != present:
            self.producer = present
        super().assign(batch)


class TrustsCutLogs(Partition):
    """A log that has lost everything takes a later batch, and that proves the earlier ones."""

    def leaves_room(self, batch: ProducerBatch, base_offset: int) -> bool:
        return True


class Snapshot(ClusterSnapshot):
    def leadership(self, tp: TopicPartition) -> Leadership | None:
        found = super().leadership(tp)
        return None if found is None else found._replace(topic_id=None)


class TrustsNamesakes(Metadata):
    """A topic made anew with the same leader epoch counts as the one that has acknowledged."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "snapshot":
            value = Snapshot(value.brokers, value.topics, value.cluster_id)
        super().__setattr__(name, value)


TRUSTS_FOR_EVER = float("inf")
"""KIP-854: a broker may have forgotten an idle producer, and accept any first batch."""


def put_first(queue: PartitionQueue, batch: ProducerBatch) -> None:
    """Before all others: as one that has never left."""
    order, batch.drain_order = batch.drain_order, None
    PartitionQueue.put_back(queue, batch)
    batch.drain_order = order


class Reverses(PartitionQueue):
    """Each batch that comes back goes before those that came back earlier."""

    def put_back(self, batch: ProducerBatch) -> None:
        put_first(self, batch)


class Appends(PartitionQueue):
    """librdkafka#1092: the retry queues behind newer records."""

    def put_back(self, batch: ProducerBatch) -> None:
        waiting = [self.take_head() for _ in range(self.depth)]
        for each in (batch, *reversed(waiting)):
            put_first(self, each)


missing: set[str] = set()


def watch_for_missing_topics(*answer: Any) -> Any:
    reply: Any = decode_metadata_response(*answer)
    missing.update(topic.name for topic in reply.topics if topic.error_code)
    return reply


class ForgetsMissingTopics(Partition):
    """librdkafka before 1.9.0: silent loss, the new records look like old ones."""

    def may_send(self, batch: ProducerBatch, now: float) -> bool:
        if self.tp.topic in missing and not self.in_flight:
            missing.discard(self.tp.topic)
            self.producer = None
        return super().may_send(batch, now)
