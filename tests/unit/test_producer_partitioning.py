"""The options of partitioning reach the records that are sent."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kprod import KafkaProducer
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
