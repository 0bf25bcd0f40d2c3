"""An accumulator with the sender's partitions, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kprod.buffer.accumulator import QueueSettings, RecordAccumulator
from kprod.buffer.compression import CODEC_IDS
from kprod.clock import ExponentialBackoff
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import ClusterSnapshot, Leadership, PartitionInfo, Partitions, TopicInfo
from kprod.metrics import ProducerMetrics
from kprod.records.record_batch import RecordBatch, read_batches
from kprod.sender.broker import Broker
from kprod.sender.network import Network
from kprod.sender.partitions import PartitionSet
from kprod.types import Broker as Address
from kprod.types import ProducerId, TopicPartition
from kprod_ext import BufferPool
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import AppendResult
from tests.support.fake_clock import FakeClock
from tests.support.steady_random import SteadyRandom
from tests.support.virtual_backend import VirtualBackend
from tests.unit.sender.exchanges import SETTINGS

BATCH = 1000
"""Bytes of a batch; two records of ``VALUE`` fill it."""

VALUE = bytes(440)
EPOCH = 5
LEADER = Leadership(1, EPOCH, None)


def cluster(leaders: Sequence[int] = (1, 1, 1)) -> ClusterSnapshot:
    """A topic with these leaders for partitions 0, 1, ..."""
    parts = Partitions.of(PartitionInfo(n, leader, EPOCH) for n, leader in enumerate(leaders))
    brokers = {node: Address(node, f"broker-{node}", 9092) for node in (1, 2, 3)}
    return ClusterSnapshot(brokers, {"t": TopicInfo("t", None, parts)})


def partitions_of(
    accumulator: RecordAccumulator, clock: FakeClock, *, least: int = BATCH, **options: Any
) -> PartitionSet:
    """The sender's side of ``accumulator``; ``least``: the initial window of its brokers."""
    backoff, metrics = ExponentialBackoff(1, 8, SteadyRandom()), ProducerMetrics()
    metadata = Metadata(clock=clock, max_age=300, max_idle=300, backoff=backoff)
    settings = replace(SETTINGS, window=(least, 10 * least, float("inf")))
    backend, rng = VirtualBackend(clock, {}), SteadyRandom()
    network = Network(backend, [], settings, metrics, clock, metadata.connection_failed, rng)
    kept: dict[str, Any] = {
        "idempotent": False,
        "max_in_flight": 5,
        "delivery_timeout": float("inf"),
    }
    return PartitionSet(
        *(accumulator, metadata, network, metrics),
        retries=1_000,
        retry_backoff=backoff,
        request_timeout_ms=30_000,
        max_request_size=1_000_000,
        **{**kept, **options},
    )


class Accumulating:
    """``linger`` is 10 s, the back-off 1, 2, 4, 8 s; memory for ``batches`` batches.

    ``options`` are those of the accumulator, or ``compression`` and ``compress`` of every topic,
    or ``delivery_timeout``.
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
        self.partitions = partitions_of(
            self.accumulator, self.clock, delivery_timeout=delivery_timeout
        )
        self.partitions.network.adopt(cluster().brokers)
        self.deadlines = self.partitions.deadlines

    @property
    def used(self) -> int:
        """Bytes that are not free."""
        return self.pool.total - self.pool.available

    def append(
        self, partition: int = 0, value: bytes = VALUE, *, timeout: float = 0
    ) -> AppendResult:
        """One record; two of the default size fill a batch."""
        tp = TopicPartition("t", partition)
        return self.accumulator.append(tp, 1000, None, value, (), timeout)

    def check(self, leaders: Sequence[int] = (1, 1, 1)) -> None:
        """Fire deadlines and find ready batches, as the sender does."""
        self.deadlines.fire(self.clock.now)
        snapshot = cluster(leaders)
        self.partitions.network.adopt(snapshot.brokers)
        self.partitions.check(snapshot, self.clock.now)

    def ready(self) -> dict[int, list[int]]:
        """Partitions with a ready batch by node, in the order of sending."""
        self.check()
        return {
            broker.address.node_id: [one.tp.partition for one in broker.ready]
            for broker in self.partitions.ready
        }

    def next_check(self) -> float:
        self.check()
        return self.deadlines.first - self.clock.now

    def drain(self, max_bytes: int = 1_000_000) -> list[ProducerBatch]:
        """The batches of one request to node 1."""
        self.check()
        return self.partitions.drain(self.broker(1), max_bytes, self.clock.now)

    def broker(self, node: int) -> Broker:
        """The broker with this id."""
        broker = self.partitions.network.broker(node)
        assert broker is not None
        return broker

    def drain_each(self, count: int) -> list[ProducerBatch]:
        """Drain and take out so many batches of one partition, one after the other."""
        found: list[ProducerBatch] = []
        for _ in range(count):
            (batch,) = self.drain()
            batch.partition.take_out(batch)
            found.append(batch)
        return found

    def number_from(self, start: int, partition: int = 0) -> None:
        """The next batch gets this sequence number."""
        producer = self.partitions.identity.producer = ProducerId(7, 1)
        queue = self.accumulator.partition_queue(TopicPartition("t", partition))
        state = self.partitions.of(queue)
        state.producer, state.next_sequence = producer, start

    def take_all(self) -> list[ProducerBatch]:
        """Take all queued batches."""
        return self.partitions.take_queued(self.clock.now)

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split it, as after a refusal for its size."""
        self.accumulator.refused_as_too_large(batch, batch.partition.queue)
        return self.cut(batch, 2)

    def cut(self, batch: ProducerBatch, count: int) -> list[ProducerBatch]:
        """Split it into ``count`` parts."""
        parts: list[ProducerBatch] = batch.partition.split(batch, count, self.clock.now)
        return parts


def read(batch: ProducerBatch) -> RecordBatch:
    """The bytes of a closed batch, read by an independent reader."""
    (found,) = read_batches(batch.build())
    assert found.crc_ok
    return found
