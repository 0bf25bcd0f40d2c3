"""Records go to the leader of their partition, even if the topic is recreated."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import pytest

from kprod.cluster.snapshot import ClusterSnapshot
from kprod.errors import BrokerError, DeliveryTimeoutError
from kprod.intake.queue_loads import QueueLoads
from kprod.types import Persisted, TopicPartition
from kprod.wire.versions import ApiKey
from tests.support.entered import entered
from tests.support.scripted_cluster import (
    ReceivedRequest,
    ScriptedBroker,
    ScriptedCluster,
    cut,
    refuse,
    silence,
)
from tests.support.sender_rig import MODES, SenderRig, error_of, rig_of
from tests.unit.cluster.replies import reply, topic

SOON = 2.0


def test_a_record_queued_without_a_leader_is_sent_soon_after_one_is_elected() -> None:
    cluster = ScriptedCluster(topics={"t": [-1]})
    broker = cluster.add(1)
    rig = rig_of(cluster)
    future = rig.queue()
    assert not rig.run(lambda: future.is_done, seconds=10)
    assert broker.count(ApiKey.METADATA) <= 20, "no back-off"
    cluster.topics["t"] = [1]
    assert rig.run(lambda: future.is_done, seconds=SOON)
    assert future.succeeded()


@pytest.mark.parametrize("known", [True, False], ids=["known", "named by the error response only"])
def test_a_leader_named_in_an_error_response_is_used_at_once(*, known: bool) -> None:
    cluster = ScriptedCluster(topics={"t": [1]})
    old = cluster.add(1)
    if known:
        cluster.add(2)
    rig = rig_of(cluster, retry_backoff_ms=900)
    asked = old.count(ApiKey.METADATA)
    new = cluster.add(2)
    old.next(ApiKey.METADATA, silence)
    old.next(ApiKey.PRODUCE, refuse(6, leader=(2, 1)))
    future = rig.queue()
    started = rig.clock.now
    assert rig.run(lambda: future.is_done, seconds=SOON)
    assert new.count(ApiKey.PRODUCE) == 1
    assert rig.clock.now - started < 0.5, "the back-off for the old leader was applied to the new"
    assert old.count(ApiKey.METADATA) <= asked + 1


def test_leader_changes_of_one_response_are_applied_together() -> None:
    cluster = ScriptedCluster(topics={"t": [1] * 40})
    old, new = cluster.add(1), cluster.add(2)
    rig = rig_of(cluster)
    old.next(ApiKey.PRODUCE, refuse(6, leader=(2, 1)))
    futures = [rig.queue(partition=partition) for partition in range(40)]

    def run() -> None:
        assert rig.run(lambda: all(future.is_done for future in futures), seconds=SOON)

    steps = entered(run, only=ClusterSnapshot.with_leaders.__code__)
    assert (old.count(ApiKey.PRODUCE), new.count(ApiKey.PRODUCE)) == (1, 1)
    assert steps == 1


class RecordingLoads(QueueLoads):
    """Records each change of the unavailable nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[set[int]] = []

    def waiting(self, nodes: Collection[int], now: float) -> None:
        if not self.nodes or set(nodes) != self.nodes[-1]:
            self.nodes.append(set(nodes))


def test_queue_lengths_per_partition_are_available() -> None:
    cluster = ScriptedCluster(topics={"t": [1, 1, 1], "other": [1]})
    cluster.add(1)
    loads = RecordingLoads()
    rig = SenderRig(cluster, loads=loads, batch_size=1)
    rig.know("t", "other")
    for partition, count in {0: 3, 2: 1}.items():
        for _ in range(count):
            rig.queue(partition=partition)
    last = rig.queue(topic="other")
    assert rig.run(lambda: bool(cluster.brokers[1].count(ApiKey.PRODUCE)), seconds=SOON)
    assert rig.sender.partitions.depths("t") == {
        0: 2
    }  # the first request has one batch per partition
    changes = rig.sender.partitions.changes
    assert rig.run(lambda: last.is_done and rig.sender.finished, seconds=SOON)
    assert rig.sender.partitions.depths("t") == {}
    assert rig.sender.partitions.changes > changes
    assert rig.sender.partitions.depths("unknown") == {}


def test_unavailable_brokers_with_ready_batches_are_reported() -> None:
    cluster = ScriptedCluster(topics={"t": [1, 2, 3]})
    for node in (1, 2, 3):
        cluster.add(node)
    loads = RecordingLoads()
    rig = rig_of(cluster, loads=loads)
    away = cluster.listeners.pop(("broker-2", 9092))
    futures = [rig.queue(partition=partition) for partition in range(3)]
    assert rig.run(lambda: futures[0].is_done and futures[2].is_done, seconds=SOON)
    assert loads.nodes[-1] == {2}
    cluster.listeners["broker-2", 9092] = away
    assert rig.run(lambda: futures[1].is_done, seconds=SOON)
    assert rig.run(lambda: loads.nodes[-1] == set(), seconds=SOON)


TP = TopicPartition("t", 0)
SEQUENCE = (45, 47, 59)
FIRST, SECOND = UUID(int=1), UUID(int=2)


def recreate(broker: ScriptedBroker) -> None:
    broker.cluster.topic_ids["t"] = SECOND
    broker.cluster.log.clear()


@pytest.fixture
def modern(broker: ScriptedBroker) -> ScriptedBroker:
    """A broker that identifies topics by id."""
    broker.offered[ApiKey.PRODUCE] = (3, 13)
    broker.cluster.topic_ids = {"t": FIRST}
    return broker


def store_recreate_and_cut(broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
    """Store the batch, recreate its topic, and lose the answer."""
    broker.usual(request)
    recreate(broker)
    return cut(broker, request)


@pytest.mark.parametrize("code", SEQUENCE)
def test_a_recreated_topic_may_require_sequence_zero(modern: ScriptedBroker, code: int) -> None:
    """Brokers before Kafka 2.5 do."""
    rig = rig_of(modern.cluster)
    assert rig.run(rig.queue(b"before").succeeded)
    recreate(modern)
    modern.next(ApiKey.PRODUCE, ScriptedBroker.usual, refuse(code))  # UNKNOWN_TOPIC_ID first
    assert rig.run(rig.queue(b"after").succeeded)
    (batch,) = modern.cluster.log[TP]
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


def test_a_batch_refused_by_a_recreated_topic_may_be_persisted(modern: ScriptedBroker) -> None:
    rig = rig_of(modern.cluster)
    assert rig.run(rig.queue(b"before").succeeded)
    modern.next(ApiKey.PRODUCE, store_recreate_and_cut, ScriptedBroker.usual, refuse(45))
    future = rig.queue(b"again")
    assert rig.run(lambda: future.is_done, seconds=5)
    assert error_of(future).persisted is Persisted.MAYBE
    assert rig.run(rig.queue(b"later").succeeded)


def test_a_leader_hint_for_a_deleted_topic_is_ignored() -> None:
    """Its epoch is above those of the new topic, so no later metadata would correct it."""
    broker = ScriptedCluster(topics={"t": [1]}, topic_ids={"t": FIRST}).add(1)
    broker.cluster.add(2)
    rig = rig_of(broker.cluster, **MODES["plain"])
    assert rig.run(rig.queue(b"before").succeeded)

    def late(_: ScriptedBroker, request: ReceivedRequest) -> bytes:
        """Metadata of the new topic arrives before this answer."""
        broker.cluster.topic_ids["t"] = SECOND
        rig.sender.metadata.answered(
            reply(topic("t", [1], epoch=0, topic_id=SECOND.bytes), nodes=(1, 2)), rig.clock.now
        )
        return refuse(6, leader=(2, 6))(broker, request) or b""

    broker.next(ApiKey.PRODUCE, late)
    assert rig.run(rig.queue(b"after").succeeded)
    leader = rig.sender.metadata.snapshot.leadership(TP)
    assert leader == (1, 0, SECOND.bytes)


def test_records_for_a_deleted_topic_time_out_with_the_error_of_the_broker() -> None:
    cluster = ScriptedCluster(topics={"t": [1], "other": [1]})
    broker = cluster.add(1)
    rig = SenderRig(cluster, delivery_timeout_ms=30_000, request_timeout_ms=1000)
    rig.know("t", "other")
    assert rig.run(rig.queue().succeeded)
    asked = broker.count(ApiKey.METADATA)
    del cluster.topics["t"]
    broker.next(ApiKey.PRODUCE, *[refuse(3)] * 1000)
    future = rig.queue()
    started = rig.clock.now
    assert rig.run(lambda: future.is_done, most_turns=2000)
    assert rig.clock.now - started == pytest.approx(30, abs=1)
    error = future.exception
    assert isinstance(error, DeliveryTimeoutError)
    assert "the last error was: UNKNOWN_TOPIC_OR_PARTITION (3): t-0" in str(error)
    assert isinstance(error.__cause__, BrokerError)
    assert error.__cause__.code == 3
    assert broker.count(ApiKey.METADATA) - asked < 90, "requested without a back-off"
