"""Clusters that change while records wait: fewer partitions, older versions, odd responses."""

from __future__ import annotations

from uuid import UUID

import pytest

from kprod.errors import KprodError
from kprod.types import Persisted
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ReceivedRequest, ScriptedBroker, ScriptedCluster
from tests.support.sender_rig import rig_of


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedCluster(topics={"t": [1, 1, 1]}).add(1)


def test_records_for_a_removed_partition_expire_unsent(broker: ScriptedBroker) -> None:
    """The topic was recreated with fewer partitions; unsent records are not stored."""
    cluster = broker.cluster
    cluster.topic_ids["t"] = UUID(int=1)
    rig = rig_of(broker.cluster, delivery_timeout_ms=40_000)
    assert rig.run(rig.queue(b"before", partition=2).succeeded)
    cluster.topics["t"], cluster.topic_ids["t"] = [1], UUID(int=2)
    rig.sender.metadata.request_update()
    requests = broker.count(ApiKey.METADATA)
    rig.clock.advance(1)
    assert rig.run(lambda: broker.count(ApiKey.METADATA) > requests)
    removed, kept = rig.queue(b"removed", partition=2), rig.queue(b"kept", partition=0)
    assert rig.run(lambda: removed.is_done and kept.is_done, seconds=60)
    assert kept.succeeded()
    assert isinstance(removed.exception, KprodError)
    assert removed.exception.persisted is Persisted.NO
    assert b"removed" not in cluster.values("t", 2)
    assert broker.count(ApiKey.METADATA) < 60, "metadata was requested in a loop"


def test_requests_use_an_older_version_after_a_broker_downgrade(broker: ScriptedBroker) -> None:
    """Queued and failed requests are encoded again in the older version."""
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue(b"0").succeeded)
    for newest in (9, 7, 3, 12):
        broker.offered[ApiKey.PRODUCE] = (3, newest)
        queued = rig.queue(b"%d" % newest)
        for connection in rig.backend.connections:
            connection.cut()
        assert rig.run(queued.succeeded, seconds=5)
        versions = [request.version for request in broker.received if request.api is ApiKey.PRODUCE]
        assert versions[-1] == newest
    assert broker.cluster.values("t") == [b"0", b"9", b"7", b"3", b"12"]


def test_an_unexpected_response_closes_only_the_connection(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster, acks=0)
    assert rig.run(rig.queue(b"0").succeeded)

    def answer_anyway(broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        broker.usual(request)
        return b"\x00\x00\x00\x08" + request.correlation_id.to_bytes(4, "big") + bytes(4)

    before = broker.connections
    broker.next(ApiKey.PRODUCE, answer_anyway)
    future = rig.queue(b"1")
    assert rig.run(lambda: future.is_done, seconds=5)
    after = rig.queue(b"2")
    assert rig.run(after.succeeded, seconds=5)
    assert broker.connections > before
    assert broker.cluster.values("t")[-1] == b"2"
