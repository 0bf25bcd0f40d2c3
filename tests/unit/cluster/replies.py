"""Metadata responses for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kprod.types import Broker
from kprod.wire.control import MetadataReply, PartitionReplies, PartitionReply, TopicReply

NODES = (1, 2, 3)


def topic(
    name: str | None,
    leaders: Sequence[int] = (1,),
    *,
    epoch: int = 0,
    error: int = 0,
    topic_id: bytes | None = None,
) -> TopicReply:
    """A topic with these leaders for partitions 0, 1, ..."""
    parts = [PartitionReply(0, number, leader, epoch) for number, leader in enumerate(leaders)]
    return TopicReply(error, name, topic_id, PartitionReplies([] if error else parts))


def reply(*topics: TopicReply, nodes: Sequence[int] = NODES, error: int = 0) -> MetadataReply:
    """The response of a cluster of ``nodes``."""
    brokers = [Broker(node, f"broker-{node}", 9092, None) for node in nodes]
    return MetadataReply(brokers, "cluster", 1, list(topics), 0, error)


def numbered(name: str, leaders: Mapping[int, int]) -> TopicReply:
    """A topic whose partitions have these numbers and leaders, in this order."""
    parts = [PartitionReply(0, number, leader, 0) for number, leader in leaders.items()]
    return TopicReply(0, name, None, PartitionReplies(parts))
