"""A producer that outlives its brokers keeps nothing of those that are gone."""

from __future__ import annotations

import gc
from functools import partial

from kprod.sender.broker import Broker
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.sender_rig import SenderRig, rig_of


def count(kind: type) -> int:
    gc.collect()
    return sum(isinstance(found, kind) for found in gc.get_objects())


def _knows(rig: SenderRig, node_id: int) -> bool:
    return node_id in rig.sender.metadata.snapshot.brokers


def test_leaders_with_ever_new_ids_leave_nothing_behind() -> None:
    """As behind agents that are replaced every few minutes, for weeks."""
    before = count(Broker)
    cluster = ScriptedCluster(topics={"t": [1]})
    cluster.add(1)
    rig = rig_of(cluster)
    for node_id in range(2, 32):
        rig.queue()
        assert rig.run(lambda: rig.sender.finished)
        cluster.add(node_id)
        cluster.topics["t"] = [node_id]
        del cluster.brokers[node_id - 1]
        rig.sender.metadata.request_update()
        assert rig.run(partial(_knows, rig, node_id))
    rig.run(lambda: False, seconds=10)
    assert len(cluster.values("t")) == 30
    assert count(Broker) - before <= 16, "some have deadlines that were withdrawn"
    assert len(rig.metrics.nodes) <= 3
    totals = rig.metrics.groups(rig.clock.now)["producer-metrics"]
    assert totals["record-send-total"] == 30
