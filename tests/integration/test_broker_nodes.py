"""Several nodes in one process: moving leaders, stopping and restarting nodes."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.broker.protocol.api_key import ApiKey
from kprod.errors import BrokerError, IllegalStateError
from tests.support.confluent_consumer import confluent_consumer
from tests.support.topic_admin import TopicAdmin
from tests.support.wire_client import WireClient

PARTITIONS = 6


BROKER = {"nodes": 3, "topics": {"t": PARTITIONS}}


def leaders(broker: EmbeddedBroker) -> list[int]:
    return [broker.leader("t", number) for number in range(PARTITIONS)]


def address(broker: EmbeddedBroker, node_id: int) -> str:
    return broker.bootstrap_servers.split(",")[node_id - 1]


def end_offset(broker: EmbeddedBroker, node_id: int, epoch: int = -1) -> tuple[int, int]:
    """Error code and end offset of partition 0 from a node."""
    part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
    with WireClient(address(broker, node_id)) as client:
        topics = [{"name": "t", "partitions": [part]}]
        client.send(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": topics})
        found = client.receive(ApiKey.LIST_OFFSETS, 7)[1].topics[0].partitions[0]
    return found.error_code, found.offset


def test_leaders_are_distributed_and_can_be_moved(broker: EmbeddedBroker) -> None:
    assert sorted(leaders(broker)) == [1, 1, 2, 2, 3, 3]
    old = broker.leader("t", 0)
    new = old % 3 + 1
    assert end_offset(broker, old, epoch=0) == (0, 0)
    broker.move_leader("t", 0, new)
    assert broker.leader("t", 0) == new
    assert end_offset(broker, old)[0] is ErrorCode.not_leader_or_follower
    assert end_offset(broker, new, epoch=0)[0] is ErrorCode.fenced_leader_epoch
    assert end_offset(broker, new, epoch=1) == (0, 0)
    assert end_offset(broker, new, epoch=2)[0] is ErrorCode.unknown_leader_epoch


def test_a_recreated_topic_has_its_original_leaders(broker: EmbeddedBroker) -> None:
    before = leaders(broker)
    admin = TopicAdmin(broker.bootstrap_servers)
    for number, leader in enumerate(before):
        broker.move_leader("t", number, leader % 3 + 1)
    admin.delete("t")
    admin.create("t", PARTITIONS)
    assert leaders(broker) == before


def test_a_stopped_node_leads_nothing_and_regains_its_partitions(broker: EmbeddedBroker) -> None:
    before = leaders(broker)
    broker.stop_node(2)
    assert set(leaders(broker)) == {1, 3}
    with pytest.raises(ConnectionRefusedError):
        WireClient(address(broker, 2))
    with pytest.raises(IllegalStateError):
        broker.stop_node(2)
    with pytest.raises(BrokerError):
        broker.move_leader("t", 0, 2)
    broker.start_node(2)
    assert leaders(broker) == before
    with pytest.raises(IllegalStateError):
        broker.start_node(2)


def test_a_group_continues_with_another_coordinator(broker: EmbeddedBroker) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(60):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
        consumer = confluent_consumer(broker.bootstrap_servers, "t")
        found: list[int] = []
        while len(found) < 120:
            if len(found) == 60:
                coordinator = broker.leader("__consumer_offsets", 0)
                broker.stop_node(coordinator)
                for number in range(60, 120):
                    producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(int(message.value() or b""))
                if len(found) in (60, 120):
                    consumer.commit(asynchronous=False)
        consumer.close()
    assert sorted(found) == list(range(120))
