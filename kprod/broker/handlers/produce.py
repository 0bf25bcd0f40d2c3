"""Produce (0): store record batches."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call, HangUp
from kprod.broker.incoming_batch import check_batch
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.topic import Topic
from kprod.errors import BrokerError

_ACKS: Final = (-1, 0, 1)


def produce(call: Call, node: Node) -> Message | None:
    """One batch per partition, stored or refused for itself.

    ``acks`` 1 and -1 are the same with one node: the answer comes when the batch is in the log.
    With 0 there is none, and a failure hangs up, which is all such a client can be told.
    """
    answers = [_topic(data, call, node) for data in call.body.topic_data]
    if call.body.acks != 0:
        return {"responses": answers}
    failed = [p for answer in answers for p in answer["partition_responses"] if p["error_code"]]
    if failed:
        raise HangUp(f"a batch sent with acks=0 was refused: {failed[0]['error_message']}")
    return None


def _topic(data: Any, call: Call, node: Node) -> Message:
    name, topic_id = getattr(data, "name", None), getattr(data, "topic_id", None)
    topic: Topic | BrokerError
    try:
        topic = node.topic(name, topic_id)
    except BrokerError as error:
        topic = error
    parts = [_partition(part, topic, call, node) for part in data.partition_data]
    return {"name": name, "topic_id": topic_id, "partition_responses": parts}


def _partition(part: Any, topic: Topic | BrokerError, call: Call, node: Node) -> Message:
    try:
        return {"index": part.index, "error_code": 0, **_append(part, topic, call, node)}
    except BrokerError as error:
        return {
            "index": part.index,
            "error_code": error.code,
            "base_offset": -1,
            "error_message": str(error),
        }


def _append(part: Any, topic: Topic | BrokerError, call: Call, node: Node) -> Message:
    if isinstance(topic, BrokerError):
        raise topic
    log = node.partition(topic, part.index)
    if call.body.acks not in _ACKS:
        raise BrokerError(ErrorCode.invalid_required_acks, f"acks={call.body.acks}")
    header = check_batch(part.records, call.version, node.log_config, node.clock.wall_ms())
    appended = log.append(header, part.records)
    node.purgatory.wake(log.where)
    return {
        "base_offset": appended.base_offset,
        "log_append_time": appended.log_append_time,
        "log_start_offset": appended.log_start_offset,
    }
