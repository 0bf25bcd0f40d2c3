"""OffsetFetch (9): no group ever committed anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node


def offset_fetch(call: Call, node: Node) -> Message:
    """Offset -1 for every partition: the client goes on with its own reset policy."""
    if hasattr(call.body, "groups"):
        return {"groups": [_group(group) for group in call.body.groups]}
    return {"topics": _topics(call.body.topics or ())}


def _group(group: Any) -> Message:
    return {"group_id": group.group_id, "topics": _topics(group.topics or ())}


def _topics(topics: Iterable[Any]) -> list[Message]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "committed_offset": -1, "metadata": ""}
                for index in topic.partition_indexes
            ],
        }
        for topic in topics
    ]
