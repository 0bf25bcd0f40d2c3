"""Batches that go through a ``Partition`` as the sender lets them, without a sender."""

from __future__ import annotations

from kprod.buffer.delivery import BatchDelivery
from kprod.cluster.snapshot import Leadership
from kprod.sender.partition import Partition
from kprod.types import ProducerId, TopicPartition
from kprod_ext import BufferPool
from kprod_ext.batch import ProducerBatch
from tests.unit.buffer.accumulating import Accumulating, partitions_of

LEADER = Leadership(1, 5, None)
FIRST_ID = ProducerId(7, 0)
SIZE = 500


class Line:
    """The batches of some partitions on their way to ``leader``."""

    def __init__(
        self, *, idempotent: bool = True, max_in_flight: int = 5, producer: ProducerId = FIRST_ID
    ) -> None:
        around = Accumulating()
        self._accumulator = around.accumulator
        self.partitions = partitions_of(
            around.accumulator, around.clock, idempotent=idempotent, max_in_flight=max_in_flight
        )
        if idempotent:
            self.partitions.identity.producer = producer
        self.leader = LEADER
        self.now = 0.0
        self._pool = BufferPool(1000 * SIZE, SIZE)

    def partition(self, number: int = 0) -> Partition:
        """As its leader is now."""
        found = self.partitions.of(self._accumulator.partition_queue(TopicPartition("t", number)))
        found.leader = self.leader
        return found

    def batch(self, partition: int = 0, records: int = 1) -> ProducerBatch:
        """One that was never sent."""
        tp = TopicPartition("t", partition)
        delivery = BatchDelivery(tp, lambda: None)
        batch = ProducerBatch(self._pool.allocate(SIZE, 0), tp, delivery, 0.0, write_limit=SIZE)
        for _ in range(records):
            batch.append(1, None, b"")
        return batch

    def admits(self, batch: ProducerBatch) -> bool:
        return self.partition(batch.tp.partition).may_send(batch, self.now)

    def send(self, batch: ProducerBatch | None = None, partition: int = 0) -> ProducerBatch:
        """Let a batch leave; it must be allowed to."""
        batch = batch or self.batch(partition)
        assert self.admits(batch)
        where = self.partition(batch.tp.partition)
        where.assign(batch)
        batch.close()
        where.begin_attempt(batch, self.now)
        return batch

    def acknowledge(self, *batches: ProducerBatch) -> None:
        """They are stored in a log that holds 100 other records, and then nothing else."""
        for batch in batches:
            self.store(batch, batch.base_sequence + 100)

    def store(self, batch: ProducerBatch, base_offset: int) -> None:
        batch.partition.stored(batch, base_offset, -1, self.now)

    def refuse(self, *batches: ProducerBatch, maybe: bool = False) -> None:
        """An attempt failed, there will be another."""
        for batch in batches:
            batch.maybe_written = batch.maybe_written or maybe
            batch.partition.off_wire(batch)

    def prove(self, partition: int = 0) -> None:
        """Let the leader acknowledge one batch of one record."""
        self.acknowledge(self.send(partition=partition))

    def renumber(self) -> None:
        """No batch may be in the log: each gets a new number."""
        self.partitions.renumber(self.now)


def place(batch: ProducerBatch) -> tuple[int, int, int]:
    """Producer id, epoch and sequence a batch was given."""
    assert batch.producer is not None
    return batch.producer.producer_id, batch.producer.epoch, batch.base_sequence
