"""Options of partitioning reach the records, and partitioners turn where a batch would begin."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.cluster.snapshot import TopicInfo
from kprod.errors import PartitionError
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedCluster, silence
from tests.support.scripted_producer import cluster_of, producer_before

BATCH = 1000
TIMEOUT = 20


def producer_for(cluster: ScriptedCluster, **options: Any) -> KafkaProducer:
    return producer_before(cluster, batch_size=BATCH, **options)


def one_of_two_brokers_is_silent() -> ScriptedCluster:
    cluster = ScriptedCluster(topics={"t": [1, 2]})
    cluster.add(1)
    cluster.add(2).next(ApiKey.PRODUCE, *[silence] * 1000)
    return cluster


@pytest.mark.parametrize(("adaptive", "least", "most"), [(True, 1, 35), (False, 20, 80)])
def test_records_without_a_key_go_where_little_is_queued(
    adaptive: bool, least: int, most: int
) -> None:
    producer = producer_for(
        one_of_two_brokers_is_silent(), partitioner_adaptive_partitioning_enable=adaptive
    )
    went = Counter[int]()
    for _ in range(100):  # each fills a batch, so each is for a partition drawn anew
        future = producer.send("t", bytes(BATCH))
        went[future.topic_partition.partition] += 1
        if future.topic_partition.partition == 0:
            future.get(TIMEOUT)
    producer.close(timeout=0)
    assert least <= went[1] <= most


def test_keys_can_be_ignored() -> None:
    with producer_for(cluster_of(50), partitioner_ignore_keys=True, linger_ms=10_000) as producer:
        futures = [producer.send("t", b"", key=b"%d" % number) for number in range(5)]
    assert len({future.get(0).partition for future in futures}) == 1


PARTITIONS = 4
LATER = 60_000


class InTurn:
    """One partition until a batch would begin there: then the next."""

    def __init__(self) -> None:
        self.present = 0
        self.left: list[int] = []

    def choose(self, topic: TopicInfo, key: Any) -> int:
        return self.present

    def on_new_batch(self, topic: TopicInfo, previous: int) -> None:
        self.left.append(previous)
        self.present = (previous + 1) % len(topic)

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        pass


def turning_producer(partitioner: InTurn, **options: Any) -> KafkaProducer:
    return producer_before(
        cluster_of(PARTITIONS), partitioner=partitioner, linger_ms=LATER, **options
    )


@pytest.mark.parametrize("key", [None, b"k"])
def test_one_batch_after_the_other_goes_to_another_partition(key: bytes | None) -> None:
    """Java's calls it for keys as well: what they mean to the partitioner only that knows."""
    partitioner = InTurn()
    with turning_producer(partitioner, batch_size=500) as producer:
        futures = [producer.send("t", bytes(100), key=key) for _ in range(200)]
        producer.flush()
    went = Counter(future.get().partition for future in futures)
    assert set(went) == set(range(PARTITIONS))
    assert len(partitioner.left) > 20
    assert partitioner.left == [number % PARTITIONS for number in range(len(partitioner.left))]
    before = len(partitioner.left)
    with turning_producer(partitioner, batch_size=500) as producer:
        producer.send_many("t", [bytes(100)] * 200)
        producer.flush()
    assert len(partitioner.left) > before + 20, "bulk calls turn as well"


def test_a_batch_with_room_asks_for_no_turn() -> None:
    partitioner = InTurn()
    with turning_producer(partitioner) as producer:
        for _ in range(10):
            producer.send("t", b"v")
        producer.send("t", b"v", partition=3)
    assert partitioner.left == [0]


class Broken(InTurn):
    def on_new_batch(self, topic: TopicInfo, previous: int) -> None:
        raise ZeroDivisionError("no turn")


def test_a_turn_that_fails_is_a_failure_of_the_partitioner() -> None:
    with turning_producer(Broken()) as producer:
        with pytest.raises(PartitionError, match="ZeroDivisionError: no turn"):
            producer.send("t", b"v")
        assert producer.flush().pending == 0
