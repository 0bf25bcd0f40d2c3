"""What a metadata answer says of one topic"""

from __future__ import annotations

from kprod.cluster.snapshot import PartitionInfo, TopicInfo
from kprod.errors import REFRESHES_METADATA, PartitionError
from kprod.wire.control import PartitionReply, TopicReply

MOST_HOLES = 1000


def no_such_partition(topic: TopicInfo, partition: int) -> PartitionError:
    """The error for a partition that a topic does not have, with those it has."""
    count = len(topic)
    has = "1 partition, number 0" if count == 1 else f"{count} partitions (0 to {count - 1})"
    return PartitionError(f"topic {topic.name!r} has no partition {partition}: it has {has}")


def awaits_leader(reply: PartitionReply) -> bool:
    """True for a partition whose lack of a leader should pass."""
    return reply.leader_id < 0 and reply.error_code in REFRESHES_METADATA


def topic_info(reply: TopicReply) -> TopicInfo:
    """A topic from its part of the reply; partitions come in any order, holes have no leader.

    Numbers that cannot be, negative or far beyond the count, are passed by: memory is taken in
    proportion to what was received.
    """
    sane = [p for p in reply.partitions if 0 <= p.partition <= MOST_HOLES + len(reply.partitions)]
    count = max((p.partition for p in sane), default=-1) + 1
    told: list[PartitionInfo | None] = [None] * count
    for p in sane:
        told[p.partition] = PartitionInfo(p.partition, p.leader_id, p.leader_epoch)
    infos = tuple([info or PartitionInfo(number) for number, info in enumerate(told)])
    return TopicInfo(reply.name or "", reply.topic_id, infos)
