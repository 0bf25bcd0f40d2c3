"""Who spreads records by load is told what waits where, and does so with effect."""

from __future__ import annotations

from collections.abc import Collection

from kprod.intake.queue_loads import QueueLoads
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.sender_rig import SenderRig, rig_of

SOON = 2.0
BATCH = 1000


class Told(QueueLoads):
    """Loads that keep what they are told of nodes, when it is something new."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[set[int]] = []

    def waiting(self, nodes: Collection[int], now: float) -> None:
        if not self.nodes or set(nodes) != self.nodes[-1]:
            self.nodes.append(set(nodes))


def test_the_lengths_of_queues_are_there_to_be_asked_for() -> None:
    cluster = ScriptedCluster(topics={"t": [1, 1, 1], "other": [1]})
    cluster.add(1)
    told = Told()
    rig = SenderRig(cluster, loads=told, batch_size=1)
    rig.know("t", "other")
    for partition, count in {0: 3, 2: 1}.items():
        for _ in range(count):
            rig.queue(partition=partition)
    last = rig.queue(topic="other")
    assert rig.run(lambda: bool(cluster.brokers[1].count(ApiKey.PRODUCE)), seconds=SOON)
    assert rig.sender.partitions.depths("t") == {
        0: 2
    }  # the first request has one of each partition
    changes = rig.sender.partitions.changes
    assert rig.run(lambda: last.is_done and rig.sender.finished, seconds=SOON)
    assert rig.sender.partitions.depths("t") == {}
    assert rig.sender.partitions.changes > changes
    assert rig.sender.partitions.depths("unknown") == {}


def test_brokers_that_cannot_take_what_is_ready_are_named() -> None:
    cluster = ScriptedCluster(topics={"t": [1, 2, 3]})
    for node in (1, 2, 3):
        cluster.add(node)
    told = Told()
    rig = rig_of(cluster, loads=told)
    away = cluster.listeners.pop(("broker-2", 9092))
    futures = [rig.queue(partition=partition) for partition in range(3)]
    assert rig.run(lambda: futures[0].is_done and futures[2].is_done, seconds=SOON)
    assert told.nodes[-1] == {2}
    cluster.listeners["broker-2", 9092] = away
    assert rig.run(lambda: futures[1].is_done, seconds=SOON)
    assert rig.run(lambda: told.nodes[-1] == set(), seconds=SOON)
