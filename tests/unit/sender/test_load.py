"""Who spreads records by load is told what waits where, and does so with effect."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable

from kprod.intake.partitioner import DefaultPartitioner
from kprod.intake.queue_loads import QueueLoads
from kprod.sender.partitions import PartitionSet
from kprod.types import TopicPartition
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedCluster, silence
from tests.support.sender_rig import SenderRig

SOON = 2.0
BATCH = 1000


class Told:
    """A load watcher that keeps what it was told of nodes, when it was something new."""

    def __init__(self) -> None:
        self.nodes: list[set[int]] = []

    def watch(self, partitions: PartitionSet) -> None:
        self.partitions = partitions

    def waiting(self, nodes: Collection[int], now: float) -> None:
        if not self.nodes or set(nodes) != self.nodes[-1]:
            self.nodes.append(set(nodes))

    def forget(self, topics: Iterable[str]) -> None:
        """Nothing to forget."""


def test_the_lengths_of_queues_are_there_to_be_asked_for() -> None:
    cluster = ScriptedCluster(topics={"t": [1, 1, 1], "other": [1]})
    cluster.add(1)
    told = Told()
    rig = SenderRig(cluster, load_watcher=told, batch_size=1)
    rig.know("t", "other")
    for partition, count in {0: 3, 2: 1}.items():
        for _ in range(count):
            rig.queue(partition=partition)
    last = rig.queue(topic="other")
    assert rig.run(lambda: bool(cluster.brokers[1].count(ApiKey.PRODUCE)), seconds=SOON)
    assert told.partitions.depths("t") == {0: 2}  # the first request has one of each partition
    changes = told.partitions.changes
    assert rig.run(lambda: last.is_done and rig.sender.finished, seconds=SOON)
    assert told.partitions.depths("t") == {}
    assert told.partitions.changes > changes
    assert told.partitions.depths("unknown") == {}


def test_brokers_that_cannot_take_what_is_ready_are_named() -> None:
    cluster = ScriptedCluster(topics={"t": [1, 2, 3]})
    for node in (1, 2, 3):
        cluster.add(node)
    told = Told()
    rig = SenderRig(cluster, load_watcher=told)
    rig.know("t")
    away = cluster.listeners.pop(("broker-2", 9092))
    futures = [rig.queue(partition=partition) for partition in range(3)]
    assert rig.run(lambda: futures[0].is_done and futures[2].is_done, seconds=SOON)
    assert told.nodes[-1] == {2}
    cluster.listeners["broker-2", 9092] = away
    assert rig.run(lambda: futures[1].is_done, seconds=SOON)
    assert rig.run(lambda: told.nodes[-1] == set(), seconds=SOON)


def shares_of_a_broker_that_does_not_answer(loads: QueueLoads | None) -> Counter[int]:
    """How many of 400 records without a key went to each of two brokers, one of them silent."""
    cluster = ScriptedCluster(topics={"t": [1, 2]})
    cluster.add(1)
    cluster.add(2).next(ApiKey.PRODUCE, *[silence] * 1000)
    rig = SenderRig(cluster, load_watcher=loads, batch_size=BATCH)
    rig.know("t")
    snapshot = rig.sender.metadata.snapshot.topic("t")
    assert snapshot is not None
    partitioner = DefaultPartitioner(BATCH, random.Random(7), loads=loads)
    chosen = Counter[int]()
    for _ in range(400):
        partition = partitioner.choose(snapshot, None)
        tp = TopicPartition("t", partition)
        now = rig.clock.wall_ms()
        done = rig.sender.accumulator.append(tp, now, None, bytes(BATCH // 2), (), 0)
        partitioner.appended(snapshot, partition, done.nbytes, done.batch_ready)
        chosen[partition] += 1
        rig.sender.run_once(0)
    return chosen


def test_a_broker_that_falls_behind_gets_less() -> None:
    evenly = shares_of_a_broker_that_does_not_answer(None)
    assert 120 <= evenly[1] <= 280
    assert shares_of_a_broker_that_does_not_answer(QueueLoads())[1] < evenly[1] / 3
    assert shares_of_a_broker_that_does_not_answer(QueueLoads(0.000001))[1] < evenly[1] / 3
