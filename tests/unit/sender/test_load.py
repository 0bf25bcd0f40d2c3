"""Who spreads records by load is told once per turn what waits where, and does so with effect."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping

from kprod.intake.partitioner import DefaultPartitioner
from kprod.intake.queue_loads import QueueLoads
from kprod.types import TopicPartition
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedCluster, silence
from tests.support.sender_rig import SenderRig

SOON = 2.0
BATCH = 1000


class Told:
    """A load watcher that keeps what it was told, when it was something new."""

    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)
        self.turns = 0
        self.queued: list[dict[str, dict[int, int]]] = []
        self.waiting: list[set[int]] = []

    def measured(
        self, queued: Mapping[str, Mapping[int, int]], waiting: Collection[int], now: float
    ) -> None:
        self.turns += 1
        if not self.queued or queued != self.queued[-1]:
            self.queued.append({topic: dict(sizes) for topic, sizes in queued.items()})
        if not self.waiting or set(waiting) != self.waiting[-1]:
            self.waiting.append(set(waiting))


def test_queues_of_the_watched_topics_are_measured() -> None:
    cluster = ScriptedCluster(topics={"t": [1, 1, 1, -1], "other": [1]})
    cluster.add(1)
    told = Told("t")
    rig = SenderRig(cluster, load_watcher=told, batch_size=1)
    rig.know("t", "other")
    for partition, count in {0: 3, 2: 1, 3: 1}.items():
        for _ in range(count):
            rig.queue(partition=partition)
    last = rig.queue(topic="other")
    del told.queued[:]
    assert rig.run(lambda: last.is_done and told.queued[-1] == {}, seconds=SOON)
    assert told.queued[0] == {"t": {0: 2}}  # the first request has one of each partition


def test_it_is_told_once_per_turn() -> None:
    cluster = ScriptedCluster(topics={"t": [1]})
    cluster.add(1)
    told = Told("t")
    rig = SenderRig(cluster, load_watcher=told)
    rig.know("t")
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=SOON)
    assert told.turns == rig.turns


def test_brokers_that_cannot_take_what_is_ready_are_named() -> None:
    cluster = ScriptedCluster(topics={"t": [1, 2, 3]})
    for node in (1, 2, 3):
        cluster.add(node)
    told = Told("t")
    rig = SenderRig(cluster, load_watcher=told)
    rig.know("t")
    away = cluster.listeners.pop(("broker-2", 9092))
    futures = [rig.queue(partition=partition) for partition in range(3)]
    assert rig.run(lambda: futures[0].is_done and futures[2].is_done, seconds=SOON)
    assert told.waiting[-1] == {2}
    cluster.listeners["broker-2", 9092] = away
    assert rig.run(lambda: futures[1].is_done, seconds=SOON)
    assert rig.run(lambda: told.waiting[-1] == set(), seconds=SOON)


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
