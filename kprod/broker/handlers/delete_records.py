"""DeleteRecords (21): let the beginning of partitions go."""

from __future__ import annotations

from typing import Any

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def delete_records(call: Call, node: Node) -> Message:
    """Everything before an offset, or everything for -1; answers the new start of each log."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_delete(topic.name, part, node) for part in topic.partitions],
            }
            for topic in call.body.topics
        ]
    }


def _delete(topic: str, part: Any, node: Node) -> Message:
    answer = {"partition_index": part.partition_index, "low_watermark": -1}
    try:
        log = node.partition(node.topic(topic, None), part.partition_index)
        return {**answer, "low_watermark": log.delete_records(part.offset)}
    except BrokerError as error:
        return {**answer, "error_code": error.code}
