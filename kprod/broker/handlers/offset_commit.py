"""OffsetCommit (8): refused, as nothing would remember the offsets."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node


def offset_commit(call: Call, node: Node) -> Message:
    """An error for each partition, one that clients report and do not retry."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        "error_code": ErrorCode.group_authorization_failed,
                    }
                    for part in topic.partitions
                ],
            }
            for topic in call.body.topics
        ]
    }
