"""An accumulator in virtual time, and what stands around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kprod.broker.records.record_batch import RecordBatch, read_batches
from kprod.buffer.accumulator import QueueSettings, RecordAccumulator
from kprod.buffer.compression import CODEC_IDS
from kprod.clock import ExponentialBackoff
from kprod.cluster.snapshot import ClusterSnapshot, Leadership, PartitionInfo, Partitions, TopicInfo
from kprod.types import Broker, TopicPartition
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


class Gate:
    """Admits every batch, except those of the partitions in ``shut``."""

    def __init__(self, *shut: int) -> None:
        self.shut = set(shut)
        self.assigned: list[ProducerBatch] = []

    def admits(self, batch: ProducerBatch, leader: Leadership) -> bool:
        return batch.tp.partition not in self.shut

    def assign(self, batch: ProducerBatch) -> None:
        self.assigned.append(batch)


class Asking(Gate):
    """Admits nothing, and remembers by leader what it was asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, list[int]] = {}

    def admits(self, batch: ProducerBatch, leader: Leadership) -> bool:
        self.asked.setdefault(leader.leader_id, []).append(batch.tp.partition)
        return False


class Accumulating:
    """``linger`` is 10 s, the back-off 1, 2, 4, 8 s; memory for ``batches`` batches.

    ``options`` are the accumulator's, or ``compression`` and ``compress`` of every topic.
    """

    def __init__(self, batches: int = 10, **options: Any) -> None:
        self.clock = FakeClock()
        self.pool = BufferPool(batches * BATCH, BATCH)
        self.wakes: list[None] = []
        codec = CODEC_IDS[options.pop("compression", "none")]
        settings = QueueSettings(10, codec=codec, compress=options.pop("compress", None))
        self.accumulator = RecordAccumulator(
            self.pool,
            clock=self.clock,
            retry_backoff=ExponentialBackoff(1, 8, SteadyRandom()),
            **{
                "batch_size": BATCH,
                "settings": lambda topic: settings,
                "wake": lambda: self.wakes.append(None),
                **options,
            },
        )

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

    def ready(self, leaders: Sequence[int] = (1, 1, 1), epoch: int = EPOCH) -> dict[int, list[int]]:
        """Partitions that could be sent now, by node, in the order of their turn."""
        snapshot = cluster(leaders=leaders, epoch=epoch)
        gate = Asking()
        for node, asked in self.accumulator.ready(snapshot, self.clock.now).nodes.items():
            for acks in asked:
                assert self.accumulator.drain(node, acks, gate, 1_000_000) == []
        self.accumulator.reopened(TopicPartition("t", p) for ps in gate.asked.values() for p in ps)
        return gate.asked

    def next_check(self) -> float:
        return self.accumulator.ready(cluster(), self.clock.now).next_check

    def drain(
        self,
        gate: Gate | None = None,
        max_bytes: int = 1_000_000,
        node: int = 1,
        leaders: Sequence[int] = (1, 1, 1),
    ) -> list[ProducerBatch]:
        """What one request to ``node`` would carry, of everything that is ready."""
        self.accumulator.ready(cluster(leaders=leaders), self.clock.now)
        taken = self.accumulator.drain(node, -1, gate or Gate(), max_bytes)
        return [batch for batch, _ in taken]

    def attempt(self, batch: ProducerBatch) -> None:
        """Send it, without success, and queue it again."""
        batch.attempt(self.clock.now, LEADER)
        self.accumulator.put_back(batch)


def read(batch: ProducerBatch) -> RecordBatch:
    """The bytes of a sealed batch, as a reader that is not the writer sees them."""
    (found,) = read_batches(batch.build())
    assert found.crc_ok
    return found
