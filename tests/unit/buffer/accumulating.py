"""An accumulator in virtual time, and what stands around it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from kprod.buffer.accumulator import QueueSettings, RecordAccumulator
from kprod.buffer.compression import CODEC_IDS
from kprod.clock import ExponentialBackoff
from kprod.cluster.snapshot import ClusterSnapshot, Leadership, PartitionInfo, Partitions, TopicInfo
from kprod.errors import KprodError
from kprod.records.record_batch import RecordBatch, read_batches
from kprod.sender.deadlines import Deadlines
from kprod.sender.partitions import PartitionSet, Window
from kprod.types import Broker, ProducerId, TopicPartition
from kprod_ext import BufferPool
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import AppendResult
from tests.support.fake_clock import FakeClock
from tests.support.steady_random import SteadyRandom

BATCH = 1000
"""Bytes of a batch; one record of ``VALUE`` takes about half of it, two fill it."""

VALUE = bytes(440)
EPOCH = 5
LEADER = Leadership(1, EPOCH, None)


def cluster(
    topic: str = "t", leaders: Sequence[int] = (1, 1, 1), epoch: int = EPOCH
) -> ClusterSnapshot:
    """A topic with these leaders for partitions 0, 1, ..."""
    parts = Partitions.of(PartitionInfo(n, leader, epoch) for n, leader in enumerate(leaders))
    brokers = {node: Broker(node, f"broker-{node}", 9092) for node in (1, 2, 3)}
    return ClusterSnapshot(brokers, {topic: TopicInfo(topic, None, parts)})


class Shut:
    """A transaction that lets no batch of the partitions in ``shut`` leave."""

    transactional_id = "shut"
    implicit = True

    def __init__(self) -> None:
        self.shut: set[int] = set()

    def may_send(self, tp: TopicPartition) -> bool:
        return tp.partition not in self.shut

    def sequence_lost(self) -> None:
        """Numbers are not looked at."""

    def record_failed(self, error: KprodError) -> None:
        """Nobody is told."""


class Accumulating:
    """``linger`` is 10 s, the back-off 1, 2, 4, 8 s; memory for ``batches`` batches.

    ``options`` are the accumulator's, or ``compression`` and ``compress`` of every topic, or the
    ``delivery_timeout``; ``late`` are the batches that ran out of it.
    """

    def __init__(self, batches: int = 10, **options: Any) -> None:
        self.clock = FakeClock()
        self.pool = BufferPool(batches * BATCH, BATCH)
        self.wakes: list[None] = []
        codec = CODEC_IDS[options.pop("compression", "none")]
        settings = QueueSettings(10, codec=codec, compress=options.pop("compress", None))
        delivery_timeout = options.pop("delivery_timeout", float("inf"))
        self.accumulator = RecordAccumulator(
            self.pool,
            clock=self.clock,
            **{
                "batch_size": BATCH,
                "settings": lambda topic: settings,
                "wake": lambda: self.wakes.append(None),
                **options,
            },
        )
        self.deadlines = Deadlines()
        self.gate = Shut()
        self.partitions = PartitionSet(
            self.accumulator,
            self.deadlines,
            idempotent=False,
            max_in_flight=5,
            delivery_timeout=delivery_timeout,
            retry_backoff=ExponentialBackoff(1, 8, SteadyRandom()),
            new_window=partial(Window, BATCH, 10 * BATCH, float("inf")),
        )
        self.partitions.transaction = cast(Any, self.gate)
        self.late: list[ProducerBatch] = []
        self.partitions.expire = lambda batch, now: self.late.append(batch)

    @property
    def used(self) -> int:
        """Bytes that are not free."""
        return self.pool.total - self.pool.available

    def append(
        self, partition: int = 0, value: bytes = VALUE, *, topic: str = "t", timeout: float = 0
    ) -> AppendResult:
        """One record; two of the default size fill a batch."""
        tp = TopicPartition(topic, partition)
        return self.accumulator.append(tp, 1000, None, value, (), timeout)

    def look(self, leaders: Sequence[int] = (1, 1, 1), epoch: int = EPOCH) -> None:
        """What the sender does before it looks which batches are ready."""
        self.deadlines.fire(self.clock.now)
        self.partitions.look(cluster(leaders=leaders, epoch=epoch), self.clock.now)

    def ready(self, leaders: Sequence[int] = (1, 1, 1), epoch: int = EPOCH) -> dict[int, list[int]]:
        """Partitions that could be sent now, by node, in the order of their turn."""
        self.look(leaders, epoch)
        groups = self.partitions.groups
        return {each.node_id: [one.tp.partition for one in each.ready] for each in groups}

    def next_check(self) -> float:
        self.look()
        return self.deadlines.first - self.clock.now

    def drain(
        self, max_bytes: int = 1_000_000, node: int = 1, leaders: Sequence[int] = (1, 1, 1)
    ) -> list[ProducerBatch]:
        """What one request to ``node`` would carry, of everything that is ready."""
        self.look(leaders)
        groups = [each for each in self.partitions.groups if each.node_id == node]
        now, most = self.clock.now, self.pool.total
        return [batch for each in groups for batch in each.drain(max_bytes, most, now)]

    def drain_each(self, count: int) -> list[ProducerBatch]:
        """So many batches of one partition, each once the one before it has its outcome."""
        found: list[ProducerBatch] = []
        for _ in range(count):
            (batch,) = self.drain()
            batch.partition.resolved(batch)
            found.append(batch)
        return found

    def number_from(self, start: int, partition: int = 0) -> None:
        """The next batch gets this sequence number."""
        producer = self.partitions.identity.producer = ProducerId(7, 1)
        queue = self.accumulator.partition_queue(TopicPartition("t", partition))
        state = self.partitions.of(queue)
        state.producer, state.next_sequence = producer, start

    def take_all(self) -> list[ProducerBatch]:
        """Everything that is queued."""
        return self.partitions.take_queued(self.clock.now)

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """A broker has found it too large."""
        self.accumulator.refused_as_too_large(batch, batch.partition.queue)
        return self.cut(batch, 2)

    def cut(self, batch: ProducerBatch, count: int) -> list[ProducerBatch]:
        """It is to leave in so many parts."""
        parts: list[ProducerBatch] = batch.partition.split(batch, count, self.clock.now)
        return parts


def read(batch: ProducerBatch) -> RecordBatch:
    """The bytes of a sealed batch, as a reader that is not the writer sees them."""
    (found,) = read_batches(batch.build())
    assert found.crc_ok
    return found
