"""OffsetCommit (8): how far a group has come."""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError
from kprod.types import TopicPartition


def offset_commit(call: Call, node: Node) -> Message:
    """All partitions of topics that exist; the answer comes when they are in the log."""
    wanted = offsets_in(call)
    known = {where: values for where, values in wanted.items() if node.has_partition(where)}
    errors: dict[TopicPartition, int] = dict.fromkeys(wanted, ErrorCode.unknown_topic_or_partition)
    errors.update(_commit(call, node, known))
    return offsets_answer(call, errors)


def offsets_in(call: Call) -> dict[TopicPartition, tuple[int, int, str]]:
    """Offset, leader epoch and metadata by partition, in a request that commits offsets."""
    return {
        TopicPartition(topic.name, part.partition_index): (
            part.committed_offset,
            getattr(part, "committed_leader_epoch", -1),
            part.committed_metadata or "",
        )
        for topic in call.body.topics
        for part in topic.partitions
    }


def offsets_answer(call: Call, errors: Mapping[TopicPartition, int]) -> Message:
    """The answer to it."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        "error_code": errors[TopicPartition(topic.name, part.partition_index)],
                    }
                    for part in topic.partitions
                ],
            }
            for topic in call.body.topics
        ]
    }


def _commit(
    call: Call, node: Node, offsets: dict[TopicPartition, tuple[int, int, str]]
) -> dict[TopicPartition, ErrorCode]:
    body = call.body
    generation = getattr(body, "generation_id_or_member_epoch", -1)
    try:
        node.check_coordinates(body.group_id)
    except BrokerError as error:
        return dict.fromkeys(offsets, ErrorCode(error.code))
    return node.groups.commit(
        body.group_id,
        offsets,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=generation,
    )
