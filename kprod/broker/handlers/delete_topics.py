"""DeleteTopics (20)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def delete_topics(call: Call, node: Node) -> Message:
    """Each topic is gone with its data when the answer is sent."""
    return {"responses": [_delete(name, topic_id, node) for name, topic_id in _wanted(call)]}


def _wanted(call: Call) -> Iterator[tuple[str | None, uuid.UUID | None]]:
    if hasattr(call.body, "topics"):
        yield from ((topic.name, topic.topic_id) for topic in call.body.topics)
    else:
        yield from ((name, None) for name in call.body.topic_names)


def _delete(name: str | None, topic_id: uuid.UUID | None, node: Node) -> Message:
    try:
        topic = node.topic(name, topic_id)
        if topic.is_internal:
            raise BrokerError(
                ErrorCode.invalid_topic_exception, f"{topic.name} is the broker's own"
            )
        node.topics.delete(topic.name)
        node.groups.forget_topic(topic.name)
    except BrokerError as error:
        return {
            "name": name,
            "topic_id": topic_id,
            "error_code": error.code,
            "error_message": str(error),
        }
    for log in topic.partitions:
        node.purgatory.wake(log.where)
    return {"name": topic.name, "topic_id": topic.id, "error_message": None}
