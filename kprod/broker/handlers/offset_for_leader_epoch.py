"""OffsetForLeaderEpoch (23): where an epoch of a partition's leader ended."""

from __future__ import annotations

from typing import Any

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def offset_for_leader_epoch(call: Call, node: Node) -> Message:
    """The largest epoch not after the one asked for, and the offset behind its last record."""
    return {
        "topics": [
            {
                "topic": wanted.topic,
                "partitions": [_partition(wanted.topic, part, node) for part in wanted.partitions],
            }
            for wanted in call.body.topics
        ]
    }


def _partition(topic: str, part: Any, node: Node) -> Message:
    answer = {"partition": part.partition}
    try:
        log = node.partition(node.topic(topic, None), part.partition, part.current_leader_epoch)
    except BrokerError as error:
        return {**answer, "error_code": error.code}
    epoch, end = log.end_of_epoch(part.leader_epoch)
    return {**answer, "leader_epoch": epoch, "end_offset": end}
