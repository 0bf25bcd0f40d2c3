"""Serializers and partitioners for every version of kafka-python."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

from kprod.cluster.snapshot import ClusterSnapshot, PartitionInfo, Partitions, TopicInfo
from kprod.errors import PartitionError
from kprod.kafka import KafkaProducer, murmur2
from kprod.kafka.partitioner import (
    Cluster,
    DefaultPartitioner,
    Partitioner,
    StickyPartitioner,
    bound,
    is_built_in,
)
from kprod.kafka.serializer import DefaultSerializer, JsonSerializer, SerializeWrapper
from kprod.kafka.serializer import bound as bound_serializer
from kprod.transport.memory import MemoryBackend
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import cluster_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python, on import
    import kafka.partitioner as upstream
    import kafka.serializer as upstream_serializers


PARTITIONS = Partitions.of([PartitionInfo(0, 1), PartitionInfo(1), PartitionInfo(2, 1)])
CLUSTER = Cluster(ClusterSnapshot(topics={"t": TopicInfo("t", None, PARTITIONS)}))


class Version3:
    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return f"{topic} {headers} {data}".encode()


class Version2:
    def serialize(self, topic: str, value: Any) -> bytes:
        return f"{topic} {value}".encode()


@pytest.mark.parametrize(
    ("serializer", "expected"),
    [
        (Version3(), b"t [] x"),
        (Version2(), b"t x"),
        (str.encode, b"x"),
        (DefaultSerializer("utf-16-le"), b"x\0"),
        (SerializeWrapper(None), "x"),
        (JsonSerializer(), b'"x"'),
    ],
)
def test_serializers_are_called_with_the_signature_of_their_version(
    serializer: Any, expected: object
) -> None:
    serialize = bound_serializer(serializer)
    assert serialize is not None
    assert serialize("t", [], "x") == expected


def test_deserializing_returns_the_serialized_value() -> None:
    for serializer in (DefaultSerializer(), JsonSerializer()):
        assert serializer.deserialize("t", [], serializer.serialize("t", [], "é")) == "é"
        assert serializer.serialize("t", [], None) is None
        assert serializer.deserialize("t", [], None) is None
    assert DefaultSerializer().serialize("t", [], b"raw") == b"raw"
    with pytest.raises(AttributeError):
        DefaultSerializer().serialize("t", [], 42)


class Version3Partitioner(Partitioner):
    def partition(self, *given: Any) -> int:
        assert given[:5] == ("t", "k", b"k", "v", b"v")
        return int(max(given[5].available_partitions_for_topic("t")))


class Version2Partitioner:
    def partition(self, topic: str, key: Any, cluster: Cluster) -> int:
        return max(cluster.partitions_for_topic(topic) or ())


def partitioner_function(key: bytes, every: list[int], available: list[int]) -> int:
    assert (key, available) == (b"k", [0, 2])
    return every[1]


@pytest.mark.parametrize(
    ("partitioner", "expected"),
    [(Version3Partitioner(), 2), (Version2Partitioner(), 2), (partitioner_function, 1)],
)
def test_partitioners_are_called_with_the_signature_of_their_version(
    partitioner: Any, expected: int
) -> None:
    assert bound(partitioner)("t", "k", b"k", "v", b"v", CLUSTER) == expected


def test_partitioners_of_kafka_python_are_recognised_as_built_in() -> None:
    for each in (upstream.DefaultPartitioner(), upstream.StickyPartitioner(), DefaultPartitioner()):
        assert is_built_in(each)
    assert not is_built_in(Version3Partitioner())
    with pytest.raises(TypeError, match="a partitioner is"):
        bound(3)
    with pytest.raises(TypeError, match="a serializer is a callable"):
        bound_serializer(3)


def test_keys_are_partitioned_as_by_kafka_python() -> None:
    ours, original = DefaultPartitioner(), upstream.DefaultPartitioner()
    for number in range(50):
        key = random.Random(number).randbytes(number)
        assert murmur2(key) == upstream.murmur2(key)
        partition = ours.partition("t", None, key, None, None, CLUSTER)
        assert partition == original.partition("t", None, key, None, None, CLUSTER)


@pytest.mark.parametrize("partitioner", [DefaultPartitioner(), StickyPartitioner()])
def test_partitioning_an_unknown_topic_raises(partitioner: Any) -> None:
    with pytest.raises(ValueError, match="other not found"):
        partitioner.partition("other", "k", b"k", "v", b"v", CLUSTER)


def test_records_without_a_key_stick_to_a_partition_with_a_leader() -> None:
    sticky = StickyPartitioner()
    first = sticky.partition("t", None, None, None, b"v", CLUSTER)
    assert first in (0, 2)
    assert sticky.partition("t", None, None, None, b"v", CLUSTER) == first
    sticky.on_new_batch("t", CLUSTER, first)
    sticky.on_new_batch("t", CLUSTER, first)  # late: another thread has called it already
    assert sticky.partition("t", None, None, None, b"v", CLUSTER) == 2 - first
    with pytest.raises(ValueError, match="not found"):
        sticky.partition("unknown", None, None, None, b"v", CLUSTER)


def test_serializers_and_partitioners_are_instances_of_the_original_classes() -> None:
    # The check by the consumer of kafka-python.
    assert isinstance(DefaultSerializer(), upstream_serializers.Deserializer)
    assert isinstance(JsonSerializer(), upstream_serializers.Serializer)
    assert isinstance(StickyPartitioner(), upstream.Partitioner)


def test_a_sticky_partitioner_uses_all_partitions_if_none_has_a_leader() -> None:
    leaderless_partitions = Partitions.without_leaders(3)
    leaderless = Cluster(ClusterSnapshot(topics={"t": TopicInfo("t", None, leaderless_partitions)}))
    sticky, seen = StickyPartitioner(), set()
    for _ in range(200):
        seen.add(before := sticky.partition("t", None, None, "v", b"v", leaderless))
        sticky.on_new_batch("t", leaderless, before)
    assert seen == {0, 1, 2}


MANY_PARTITIONS = 6
LATER = 60_000


class FixedChoice(upstream.Partitioner):  # type: ignore[misc]
    def __init__(self, *chosen: int) -> None:
        self.chosen = list(chosen)
        self.calls: list[Any] = []

    def partition(self, *given: Any) -> int:
        return self.chosen[0]

    def on_new_batch(self, *given: Any) -> None:
        self.calls.append(given)
        if len(self.chosen) > 1:
            self.chosen.pop(0)


@pytest.fixture
def cluster() -> ScriptedCluster:
    return cluster_of(MANY_PARTITIONS)


def producer_for(cluster: ScriptedCluster, partitioner: object, **options: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers="broker-1:9092",
        transport=lambda **_: MemoryBackend(cluster.listeners),
        partitioner=partitioner,
        **{"linger_ms": LATER, **options},
    )


def test_a_record_for_a_new_batch_goes_to_the_newly_chosen_partition(
    cluster: ScriptedCluster,
) -> None:
    partitioner = FixedChoice(2, 4)
    with producer_for(cluster, partitioner) as producer:
        future = producer.send("t", b"first")
        ((topic, known, previous),) = partitioner.calls
        assert (topic, previous) == ("t", 2)
        assert known.partitions_for_topic("t") == set(range(MANY_PARTITIONS))
        producer.flush()
        assert future.get(0).partition == 4


class Broken(FixedChoice):
    def on_new_batch(self, *given: Any) -> None:
        raise ZeroDivisionError


def test_an_invalid_choice_for_a_new_batch_is_refused(cluster: ScriptedCluster) -> None:
    for invalid in (MANY_PARTITIONS, -1, "2"):
        with producer_for(cluster, FixedChoice(2, invalid)) as producer:  # type: ignore[arg-type]
            with pytest.raises(PartitionError, match="has chosen"):
                producer.send("t", b"v")
            assert producer.send("t", b"v", partition=0).get(20).partition == 0
    with producer_for(cluster, Broken(2)) as producer, pytest.raises(ZeroDivisionError):
        producer.send("t", b"v")
