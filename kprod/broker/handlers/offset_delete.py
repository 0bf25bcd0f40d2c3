"""OffsetDelete (47): forget some of what a group committed."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError
from kprod.types import TopicPartition


def offset_delete(call: Call, node: Node) -> Message:
    """Of a group without members; 69 for a group nobody knows."""
    wanted = [
        TopicPartition(topic.name, part.partition_index)
        for topic in call.body.topics
        for part in topic.partitions
    ]
    try:
        node.check_coordinates(call.body.group_id)
        found = node.groups.delete_offsets(call.body.group_id, wanted)
    except BrokerError as error:
        return {"error_code": error.code}
    if isinstance(found, ErrorCode):
        return {"error_code": found}
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": ErrorCode.none}
                    for part in topic.partitions
                ],
            }
            for topic in call.body.topics
        ]
    }
