"""Topics as the cluster might tell of them."""

from __future__ import annotations

from collections.abc import Container

from kprod.cluster.snapshot import PartitionInfo, Partitions, TopicInfo


def topic(
    partitions: int, leaderless: Container[int] = (), name: str = "t", brokers: int = 1
) -> TopicInfo:
    """Partition n is led by broker n % ``brokers`` + 1, or by nobody."""
    infos = (
        PartitionInfo(number, leader_id=-1 if number in leaderless else number % brokers + 1)
        for number in range(partitions)
    )
    return TopicInfo(name, None, Partitions.of(infos))
