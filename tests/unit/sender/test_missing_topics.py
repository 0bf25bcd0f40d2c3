"""A topic that is deleted while records for it wait: they do not wait for ever, and say why."""

from __future__ import annotations

import pytest

from kprod.errors import DeliveryTimeoutError
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedCluster, refuse
from tests.support.sender_rig import SenderRig

SECONDS = 30


def test_records_for_a_deleted_topic_fail_when_their_time_is_up_and_say_why() -> None:
    cluster = ScriptedCluster(topics={"t": [1], "other": [1]})
    broker = cluster.add(1)
    rig = SenderRig(cluster, delivery_timeout_ms=SECONDS * 1000, request_timeout_ms=1000)
    rig.know("t", "other")
    assert rig.run(rig.queue().succeeded)
    asked = broker.count(ApiKey.METADATA)
    del cluster.topics["t"]
    broker.next(ApiKey.PRODUCE, *[refuse(3)] * 1000)
    future = rig.queue()
    started = rig.clock.now
    assert rig.run(lambda: future.is_done, most_turns=2000)
    assert rig.clock.now - started == pytest.approx(SECONDS, abs=1)
    error = future.exception
    assert isinstance(error, DeliveryTimeoutError)
    assert "the last error was: UNKNOWN_TOPIC_OR_PARTITION (3): t-0" in str(error)
    assert broker.count(ApiKey.METADATA) - asked < 3 * SECONDS, "asked without a back-off"


def test_other_topics_are_not_held_up() -> None:
    cluster = ScriptedCluster(topics={"t": [1], "other": [1]})
    cluster.add(1)
    rig = SenderRig(cluster)
    rig.know("t", "other")
    del cluster.topics["t"]
    lost = rig.queue()
    rig.run(lambda: False, seconds=2)
    assert rig.run(rig.queue(topic="other").succeeded, seconds=1)
    assert not lost.is_done
