"""Batches that go through ``Sequences`` as the sender lets them, without a sender."""

from __future__ import annotations

from kprod.buffer.delivery import BatchDelivery
from kprod.cluster.snapshot import Leadership
from kprod.sender.sequences import Sequences
from kprod.types import ProducerId, TopicPartition
from kprod_ext import BufferPool
from kprod_ext.batch import ProducerBatch

LEADER = Leadership(1, 5, None)
FIRST_ID = ProducerId(7, 0)
SIZE = 500


class Line:
    """The batches of some partitions on their way to ``leader``."""

    def __init__(
        self, *, idempotent: bool = True, max_in_flight: int = 5, producer: ProducerId = FIRST_ID
    ) -> None:
        self.sequences = Sequences(idempotent=idempotent, max_in_flight=max_in_flight)
        if idempotent:
            self.sequences.identity.producer = producer
        self.leader = LEADER
        self._pool = BufferPool(1000 * SIZE, SIZE)

    def batch(self, partition: int = 0, records: int = 1) -> ProducerBatch:
        """One that was never sent."""
        tp = TopicPartition("t", partition)
        delivery = BatchDelivery(tp, lambda: None)
        batch = ProducerBatch(self._pool.allocate(SIZE, 0), tp, delivery, 0.0, write_limit=SIZE)
        for _ in range(records):
            batch.append(1, None, b"")
        return batch

    def admits(self, batch: ProducerBatch) -> bool:
        return self.sequences.admits(batch, self.leader)

    def send(self, batch: ProducerBatch | None = None, partition: int = 0) -> ProducerBatch:
        """Let a batch leave; it must be allowed to."""
        batch = batch or self.batch(partition)
        assert self.admits(batch)
        self.sequences.assign(batch)
        batch.close()
        self.sequences.left(batch)
        batch.attempt(0.0, self.leader)
        return batch

    def acknowledge(self, *batches: ProducerBatch) -> None:
        """They are stored in a log that holds 100 other records, and then nothing else."""
        for batch in batches:
            self.sequences.off_wire(batch)
            self.sequences.acknowledged(batch, batch.base_sequence + 100)

    def refuse(self, *batches: ProducerBatch, maybe: bool = False) -> None:
        """An attempt failed, there will be another."""
        for batch in batches:
            batch.maybe_written = batch.maybe_written or maybe
            self.sequences.off_wire(batch)

    def give_up(self, *batches: ProducerBatch) -> None:
        """An attempt failed, there will be no other."""
        for batch in batches:
            self.sequences.off_wire(batch)
            self.sequences.resolved(batch)

    def prove(self, partition: int = 0) -> None:
        """Let the leader acknowledge one batch of one record."""
        self.acknowledge(self.send(partition=partition))


def place(batch: ProducerBatch) -> tuple[int, int, int]:
    """Producer id, epoch and sequence a batch was given."""
    assert batch.producer is not None
    return batch.producer.producer_id, batch.producer.epoch, batch.base_sequence
