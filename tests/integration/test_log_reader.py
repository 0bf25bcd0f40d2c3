"""kprod.admin: read topics from given offsets to the end, and follow them in groups."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from kprod import KafkaProducer
from kprod.admin import committed_offsets
from kprod.admin.cluster_client import connect
from kprod.admin.leader_wait import LeaderWait
from kprod.admin.log_reader import TopicFollower, end_offsets, read_topic
from kprod.broker import ApiKey as BrokerApi
from kprod.broker import Authentication, EmbeddedBroker, Fault, make_listener
from kprod.errors import ConnectionLost, KprodError, PartitionError, SaslAuthenticationError
from kprod.transport.memory import MemoryBackend
from kprod.wire.versions import ApiKey
from tests.support.brokers import StartBroker, embedded, tansu
from tests.support.scripted_cluster import ScriptedCluster, telling

TOPIC = "read"


def send(producer: KafkaProducer, *numbers: int) -> None:
    """Send one batch per partition, alternating between two partitions."""
    for number in numbers:
        producer.send(TOPIC, b"%d" % number, partition=number % 2)
    assert producer.flush(timeout=20).failed == 0


@pytest.mark.parametrize("start", [embedded, tansu])
def test_the_end_offset_follows_the_last_batch(start: StartBroker) -> None:
    """Tansu reports the start of the last batch as the end offset."""
    with (
        start({TOPIC: 2}) as bootstrap,
        KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer,
    ):
        assert end_offsets(bootstrap, TOPIC) == {0: 0, 1: 0}
        send(producer, *range(10))
        send(producer, *range(10, 20))
        assert end_offsets(bootstrap, TOPIC) == {0: 10, 1: 10}
        assert len(list(read_topic(bootstrap, TOPIC))) == 20


def test_reading_begins_at_the_given_offsets() -> None:
    with (
        embedded({TOPIC: 2}) as bootstrap,
        KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer,
    ):
        send(producer, *range(6))
        before = end_offsets(bootstrap, TOPIC)
        send(producer, *range(6, 10))
        values = [record.value for _, record in read_topic(bootstrap, TOPIC, since=before)]
        assert values == [b"6", b"8", b"7", b"9"]
        second_partition = list(read_topic(bootstrap, TOPIC, since={0: 5, 1: 4}))
        assert [(number, record.value) for number, record in second_partition] == [(1, b"9")]
        middle_of_a_batch = list(read_topic(bootstrap, TOPIC, since={0: 1, 1: 99}))
        assert [record.value for _, record in middle_of_a_batch] == [b"2", b"4", b"6", b"8"]


def follow(broker: EmbeddedBroker, wait: LeaderWait | None = None, **kwargs: Any) -> TopicFollower:
    options = {"bootstrap_servers": broker.bootstrap_servers}
    return TopicFollower(
        TOPIC, options, begin=lambda reader: reader.start(), wait=wait or LeaderWait(), **kwargs
    )


def values(follower: TopicFollower, count: int) -> list[bytes]:
    """The values of the next records, with a timeout."""
    found: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += [record.value or b"" for _, record in follower.poll()]
    return found


def test_a_follower_finds_moved_leaders() -> None:
    with (
        EmbeddedBroker(nodes=3, topics={TOPIC: 2}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
        follow(broker) as follower,
    ):
        send(producer, 0, 1)
        assert sorted(values(follower, 2)) == [b"0", b"1"]
        broker.move_leader(TOPIC, 0, broker.leader(TOPIC, 0) % 3 + 1)
        send(producer, 2, 3)
        assert sorted(values(follower, 2)) == [b"2", b"3"]
        broker.stop_node(1)  # also the first bootstrap server
        send(producer, 4, 5)
        assert sorted(values(follower, 2)) == [b"4", b"5"]


def test_a_follower_waits_for_a_stopped_broker() -> None:
    errors: list[KprodError] = []
    with (
        EmbeddedBroker(topics={TOPIC: 1}) as broker,
        follow(broker, LeaderWait(2.5, notify=errors.append)) as follower,
    ):
        broker.stop_node(1)
        with pytest.raises(ConnectionLost, match="refused"):
            values(follower, 1)
        assert errors
        broker.start_node(1)
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(TOPIC, b"back")
        assert values(follower, 1) == [b"back"]


@contextmanager
def six_records() -> Iterator[EmbeddedBroker]:
    """A broker with records 0 to 5 in one partition."""
    with EmbeddedBroker(topics={TOPIC: 1}) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(6):
                producer.send(TOPIC, b"%d" % number)
        yield broker


def test_a_group_continues_after_the_last_shown_record() -> None:
    with six_records() as broker:
        with follow(broker, group="g") as follower:
            for partition, record in islice(follower.poll(), 2):
                if record.offset == 0:  # a signal came before the second was printed
                    follower.shown(partition, record)
            follower.commit()
        with follow(broker, group="g") as follower:
            assert values(follower, 5) == [b"1", b"2", b"3", b"4", b"5"]
            assert list(follower.poll()) == []
            follower.commit()
        with follow(broker, group="g") as follower:
            assert follower.at_end


def test_a_group_waits_for_its_coordinator() -> None:
    """A new, moved or dead coordinator."""
    with six_records() as broker:
        broker.faults.add(Fault(api=BrokerApi.FIND_COORDINATOR, error=15))
        broker.faults.add(Fault(api=BrokerApi.OFFSET_FETCH, cut_at=0))
        broker.faults.add(Fault(api=BrokerApi.OFFSET_COMMIT, error=16))
        broker.faults.add(Fault(api=BrokerApi.OFFSET_COMMIT, cut_at=0))
        with follow(broker, LeaderWait(20), group="g") as follower:
            assert len(values(follower, 6)) == 6
            follower.commit()
            assert committed_offsets(broker.bootstrap_servers, "g") == {(TOPIC, 0): (6, "")}


def delete(broker: EmbeddedBroker, before: int) -> None:
    """Delete the records before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (deletion,) = admin.delete_records([ConfluentPartition(TOPIC, 0, before)]).values()
    deletion.result(20)


def test_a_follower_skips_records_deleted_before_it_reads_them() -> None:
    gaps: list[tuple[int, int, int]] = []
    with six_records() as broker, follow(broker, skipped=lambda *gap: gaps.append(gap)) as follower:
        delete(broker, 4)
        assert values(follower, 2) == [b"4", b"5"]
    assert gaps == [(0, 0, 4)]


@pytest.mark.parametrize(("deleted", "committed"), [(4, 2), (0, 9)])
def test_a_group_continues_if_its_offset_is_out_of_range(deleted: int, committed: int) -> None:
    """After retention, or because the topic was recreated."""
    with six_records() as broker:
        with follow(broker, group="g") as follower:
            (record,) = islice((found for _, found in follower.poll()), 1)
            follower.shown(0, record._replace(offset=committed - 1))
            follower.commit()
        delete(broker, deleted)
        with follow(broker, group="g") as follower:
            assert values(follower, 6 - deleted) == [b"%d" % n for n in range(deleted, 6)]


def test_a_follower_raises_if_a_recreated_topic_lacks_a_partition() -> None:
    with EmbeddedBroker(topics={TOPIC: 2}) as broker, follow(broker, LeaderWait(20)) as follower:
        with connect(broker.bootstrap_servers, 20, {}) as cluster:
            cluster.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 1)
        with pytest.raises(PartitionError, match="partitions 0 to 0, no 1"):
            values(follower, 1)


def test_an_unresponsive_bootstrap_server_is_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, embedded({TOPIC: 1}) as bootstrap:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{bootstrap}"
        with connect(servers, 20, {}) as cluster:
            assert list(cluster.leaders(TOPIC)) == [0]


@pytest.mark.parametrize("name", ["bootstrap_servers", "bootstrap.servers"])
def test_the_servers_argument_overrides_the_options(name: str) -> None:
    with embedded({TOPIC: 1}) as bootstrap:
        assert end_offsets(bootstrap, TOPIC, options={name: "elsewhere:1"}) == {0: 0}


def test_topic_requests_wait_for_a_controller() -> None:
    cluster = ScriptedCluster(topics={TOPIC: [1]})
    broker = cluster.add(1)
    broker.offered |= {ApiKey.DELETE_TOPICS: (1, 3), ApiKey.DESCRIBE_CONFIGS: (1, 2)}
    no_controller = telling(**{**cluster.metadata([TOPIC]), "controller_id": -1})
    broker.next(ApiKey.METADATA, no_controller, no_controller)
    found = {"resource_type": 2, "resource_name": TOPIC, "error_message": None, "configs": []}
    broker.next(ApiKey.DESCRIBE_CONFIGS, telling(results=[found]))
    broker.next(ApiKey.DELETE_TOPICS, telling(responses=[{"name": TOPIC}]))
    options = {"transport": lambda **_: MemoryBackend(cluster.listeners)}
    with connect("broker-1:9092", 20, options) as client:
        assert client.topic(TOPIC).options == {}
        client.delete_topic(TOPIC)
    assert broker.count(ApiKey.METADATA) == 3


def test_all_bootstrap_servers_are_tried_before_a_login_fails() -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    options |= {"sasl_plain_username": "user", "sasl_plain_password": "today's"}
    listeners = [
        make_listener("SASL", authentication=Authentication({"user": password}, ("PLAIN",)))
        for password in ("yesterday's", "today's")
    ]
    with (
        EmbeddedBroker(listeners=[listeners[0]]) as other,
        EmbeddedBroker(listeners=[listeners[1]], topics={"t": 1}) as right,
    ):
        both = f"{other.bootstrap_servers},{right.bootstrap_servers}"
        for _ in range(8):  # the first server is chosen at random
            assert end_offsets(both, "t", options=options) == {0: 0}
        with pytest.raises(SaslAuthenticationError):
            end_offsets(other.bootstrap_servers, "t", options=options)
