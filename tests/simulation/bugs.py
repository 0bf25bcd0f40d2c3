"""The planted bugs, each with a seed that detects it.


its place.
"""

from __future__ import annotations

from typing import Any

from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue
from tests.support.planted import bugs

ORDER = bugs("""
    a possibly written batch is sent under a new epoch (Redpanda#3039) | 24
    kprod.sender.partition.Partition.renumber
    - doomed = [batch for batch in self.in_flight if batch.maybe_written]
    - self.in_flight = [batch for batch in self.in_flight if not batch.maybe_written]
    + doomed = []
    kprod.sender.partition.Partition._out_of_sequence
    - elif not batch.maybe_written and self._partitions.transaction is None:
    + elif self._partitions.transaction is None:

    a new epoch is taken for every partition at once (librdkafka#4953) | 92
    kprod.sender.partitions.PartitionSet.renumber
    + if any(each.needs_new_epoch for each in self._known.values()):
    +     for each in self._known.values():
    +         each.want_new_epoch()
    kprod.sender.partition.Partition.renumber
    - doomed = [batch for batch in self.in_flight if batch.maybe_written]
    - self.in_flight = [batch for batch in self.in_flight if not batch.maybe_written]
    + doomed = []

    a retry gets new sequence numbers (librdkafka#4736, franz-go#1217) | 5
    kprod.sender.partition.Partition.assign
    + if batch.attempts and self.producer is not None:
    +     self._number(batch)

    several batches in flight before the first acknowledgement (KAFKA-14359) | 24
    kprod.sender.partition.Partition.may_send
    + self.proven_leader = self.leader

    a retry overtakes older batches (librdkafka#1092, sarama#2619) | 23
    kprod.sender.partition.Partition.may_send
    + if batch.attempts and not self.needs_new_epoch:
    +     return True

    a new epoch goes on with the old numbers (KAFKA-12152) | 9
    kprod.sender.partition.Partition.assign
    + if self.producer is not None:
    +     self.producer = self._partitions.identity.producer

    a broker is trusted after its topic was recreated | 106
    kprod.cluster.snapshot.ClusterSnapshot.leadership
    - return Leadership(info.leader_id, info.leader_epoch, self.topic_id(tp.topic))
    + return Leadership(info.leader_id, info.leader_epoch, None)

    a truncated log proves that a batch was stored | 548
    kprod.sender.partition.Partition.leaves_room
    + return True

    batches come back at the end of the queue (librdkafka#1092) | 5

    sequences are forgotten while a topic is missing (librdkafka before 1.9.0) | 28
    kprod.sender.requests.MetadataRequests._decode
    - return reply
    + missing = {topic.name for topic in reply.topics if topic.error_code}
    + self._partitions.missing = getattr(self._partitions, "missing", set()) | missing
    + return reply
    kprod.sender.partition.Partition.may_send
    + missing = getattr(self._partitions, "missing", set())
    + if self.tp.topic in missing and not self.in_flight:
    +     missing.discard(self.tp.topic)
    +     self.producer = None

    a broker is assumed to remember producers without a limit (KIP-854) | 224
    kprod.sender.partition.Partition.stored
    - self.proven_until = batch.last_attempt_at + PROOF_LASTS
    + self.proven_until = float("inf")
""")

OUTCOMES = bugs("""
    halves of a split batch count as not written | 1597
    kprod.buffer.split.split
    - return parts
    + for part in parts:
    +     part.maybe_written = False
    + return parts

    a batch out of sequence counts as stored | 202
    kprod.sender.partition.Partition._out_of_sequence
    - self.take_out(batch)
    - self.unresolved.append(batch)
    + self.stored(batch, -1, -1, now)

    memory is given back while on the wire (CVE-2026-35554) | 24
    kprod.sender.partition.Partition.expire
    - self.end(batch, self._expired(batch, state, now), now)
    + on_wire = batch.on_wire
    + self.end(batch, self._expired(batch, state, now), now)
    + if on_wire:
    +     batch.release()

    offsets of retried batches are one too high | 0
    kprod.sender.partition.Partition.stored
    + base_offset += batch.attempts > 1 and base_offset >= 0

    a rejected sequence is retried without end (aiokafka#1017) | 124
    kprod.sender.partition.Partition._resequence
    + return self._retry(batch, now)

    expired batches vanish (kafka-python#2198) | 12
    kprod.sender.partition.Partition._take_late
    - return late
    + return [batch for batch in late if batch.on_wire]

    a lost leadership means not written | 168
    kprod.sender.produce.ProduceExchange._refused
    - stored = part.base_offset >= 0
    + stored = False
""")

ANSWERS_AND_PACE = bugs("""
    records go to another partition (KAFKA-19012) | 1
    kprod.sender.produce.ProduceExchange.encode
    - for (topic, partition), batch in self._batches.items():
    + first, *others = self._batches.values()
    + for (topic, partition), batch in zip(self._batches, [*others, first], strict=True):

    throttling is ignored | 4
    kprod.sender.produce.ProduceExchange.answered
    - return throttle_ms
    + return 0

    the limit of requests in flight is ignored | 1
    kprod.sender.connection.BrokerConnection.open
    + self._max_in_flight = 1000

    a partition that waits is forgotten | 4
    kprod.sender.partition.Partition.move
    + if self.place is WAITING and place is READY:
    +     return
""")

GROWTH = bugs("""
    records are counted before a batch leaves | 13
    kprod.sender.partition.Partition.may_send
    + vars(self._partitions).setdefault("counted", {}).setdefault(batch, batch.record_count)
    kprod.sender.partition.Partition._number
    - self.next_sequence = (self.next_sequence + batch.record_count) & LAST_SEQUENCE
    + counted = vars(self._partitions).get("counted", {}).get(batch, batch.record_count)
    + self.next_sequence = (self.next_sequence + counted) & LAST_SEQUENCE

    a window stays wide after a loss | 8498
    kprod.sender.broker.Window.failed
    + lost = False
""")


class FreesOnce(ProducerBatch):
    freed = False

    def release(self) -> None:
        if not self.freed:
            self.freed = True
            super().release()


def put_first(queue: PartitionQueue, batch: ProducerBatch) -> None:
    """Before all others, like a batch that was never drained."""
    order, batch.drain_order = batch.drain_order, None
    PartitionQueue.put_back(queue, batch)
    batch.drain_order = order


class Appends(PartitionQueue):
    def put_back(self, batch: ProducerBatch) -> None:
        waiting = [self.take_head() for _ in range(self.depth)]
        for each in (batch, *reversed(waiting)):
            put_first(self, each)


BATCH = "kprod.buffer.accumulator.ProducerBatch"
QUEUE = "kprod.buffer.accumulator.PartitionQueue"
SWAPS: dict[str, tuple[tuple[str, Any], ...]] = {
    "memory is given back while on the wire (CVE-2026-35554)": (
        (BATCH, FreesOnce),
        ("kprod.buffer.split.ProducerBatch", FreesOnce),
    ),
    "batches come back at the end of the queue (librdkafka#1092)": ((QUEUE, Appends),),
}
BUGS = tuple(
    bug._replace(swaps=SWAPS.get(bug.name, ()))
    for bug in (*ORDER, *OUTCOMES, *ANSWERS_AND_PACE, *GROWTH)
)
