"""Sticky partitioners of the application turn to another partition where a batch would begin."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from kprod.errors import PartitionError
from kprod.kafka import KafkaProducer
from kprod.transport.memory import MemoryBackend
from tests.support.scripted_cluster import ScriptedCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, when it is imported
    import kafka.partitioner as theirs

PARTITIONS = 6
LATER = 60_000


class Stubborn(theirs.Partitioner):  # type: ignore[misc]  # as above
    """Chooses what it is told; turns by ``next``."""

    def __init__(self, *chosen: int) -> None:
        self.chosen = list(chosen)
        self.told: list[Any] = []

    def partition(self, *given: Any) -> int:
        return self.chosen[0]

    def on_new_batch(self, *given: Any) -> None:
        self.told.append(given)
        if len(self.chosen) > 1:
            self.chosen.pop(0)


@pytest.fixture
def cluster() -> ScriptedCluster:
    scripted = ScriptedCluster(topics={"t": [1] * PARTITIONS, "other": [1] * PARTITIONS})
    scripted.add(1)
    return scripted


def producer_for(cluster: ScriptedCluster, partitioner: object, **options: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers="broker-1:9092",
        transport=lambda **_: MemoryBackend(cluster.listeners),
        partitioner=partitioner,
        **{"linger_ms": LATER, **options},
    )


def test_the_record_that_would_begin_a_batch_goes_where_the_partitioner_turns_to(
    cluster: ScriptedCluster,
) -> None:
    partitioner = Stubborn(2, 4)
    with producer_for(cluster, partitioner) as producer:
        future = producer.send("t", b"first")
        ((topic, known, previous),) = partitioner.told
        assert (topic, previous) == ("t", 2)
        assert known.partitions_for_topic("t") == set(range(PARTITIONS))
        producer.flush()
        assert future.get(0).partition == 4


class Broken(Stubborn):
    def on_new_batch(self, *given: Any) -> None:
        raise ZeroDivisionError


def test_what_the_partitioner_raises_comes_through(cluster: ScriptedCluster) -> None:
    with producer_for(cluster, Broken(2)) as producer, pytest.raises(ZeroDivisionError):
        producer.send("t", b"v")


@pytest.mark.parametrize("wrong", [PARTITIONS, -1, "2"])
def test_a_turn_to_a_partition_that_is_not_there_is_refused(
    cluster: ScriptedCluster, wrong: Any
) -> None:
    with producer_for(cluster, Stubborn(2, wrong)) as producer:
        with pytest.raises(PartitionError, match="has chosen"):
            producer.send("t", b"v")
        assert producer.send("t", b"v", partition=0).get(20).partition == 0
