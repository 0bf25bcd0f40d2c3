"""Records follow the leader of their partition, and wait for one without waiting too long."""

from __future__ import annotations

import sys
from types import FrameType

from kprod.cluster.snapshot import ClusterSnapshot
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedCluster, refuse, silence
from tests.support.sender_rig import rig_of

SOON = 2.0


def test_a_record_queued_without_a_leader_leaves_soon_after_there_is_one() -> None:
    cluster = ScriptedCluster(topics={"t": [-1]})
    broker = cluster.add(1)
    rig = rig_of(cluster)
    future = rig.queue()
    assert not rig.run(lambda: future.is_done, seconds=10)
    assert broker.count(ApiKey.METADATA) <= 20, "the back-off was not kept"
    cluster.topics["t"] = [1]
    assert rig.run(lambda: future.is_done, seconds=SOON)
    assert future.succeeded()


def test_a_leader_named_in_the_refusal_is_used_at_once() -> None:
    cluster = ScriptedCluster(topics={"t": [1]})
    old, new = cluster.add(1), cluster.add(2)
    rig = rig_of(cluster, retry_backoff_ms=900)
    old.next(ApiKey.PRODUCE, refuse(6, leader=(2, 1)))
    future = rig.queue()
    started = rig.clock.now
    assert rig.run(lambda: future.is_done, seconds=SOON)
    assert new.count(ApiKey.PRODUCE) == 1
    assert rig.clock.now - started < 0.5, "the back-off for the old leader was applied to the new"


def test_leaders_that_move_together_are_followed_in_one_step() -> None:
    cluster = ScriptedCluster(topics={"t": [1] * 40})
    old, new = cluster.add(1), cluster.add(2)
    rig = rig_of(cluster)
    old.next(ApiKey.PRODUCE, refuse(6, leader=(2, 1)))
    futures = [rig.queue(partition=partition) for partition in range(40)]
    steps = 0

    def count_steps(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event == "call" and frame.f_code is ClusterSnapshot.with_leaders.__code__

    sys.setprofile(count_steps)
    try:
        assert rig.run(lambda: all(future.is_done for future in futures), seconds=SOON)
    finally:
        sys.setprofile(None)
    assert (old.count(ApiKey.PRODUCE), new.count(ApiKey.PRODUCE)) == (1, 1)
    assert steps == 1


def test_a_leader_nobody_has_heard_of_is_used_at_once_where_the_refusal_says_it_is() -> None:
    cluster = ScriptedCluster(topics={"t": [1]})
    old = cluster.add(1)
    rig = rig_of(cluster, retry_backoff_ms=900)
    asked = old.count(ApiKey.METADATA)
    new = cluster.add(3)
    old.next(ApiKey.METADATA, silence)
    old.next(ApiKey.PRODUCE, refuse(6, leader=(3, 1)))
    future = rig.queue()
    started = rig.clock.now
    assert rig.run(lambda: future.is_done, seconds=SOON)
    assert new.count(ApiKey.PRODUCE) == 1
    assert rig.clock.now - started < 0.5
    assert old.count(ApiKey.METADATA) <= asked + 1
