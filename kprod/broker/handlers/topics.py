"""CreateTopics (19), DeleteTopics (20), DeleteRecords (21), CreatePartitions (37)."""

from __future__ import annotations

import uuid
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.handlers.configs import created_config
from kprod.broker.log.log_config import topic_configs, with_overrides
from kprod.broker.node import Call, Node, by_topic, or_error
from kprod.broker.protocol.messages import Message
from kprod.broker.topics import check_request
from kprod.errors import BrokerError

_DEFAULT: Final = -1


def create_topics(call: Call, node: Node) -> Message:
    """Create topics. Each topic is created or refused on its own.

    If the request asks for too many partitions in total, all topics are refused.
    """
    total = sum(_asked(wanted, node) for wanted in call.body.topics)
    return {
        "topics": [
            or_error({"name": wanted.name}, _create, wanted, total, call, node)
            for wanted in call.body.topics
        ]
    }


def _asked(wanted: Any, node: Node) -> int:
    return max(0, len(wanted.assignments) or _resolve(wanted.num_partitions, node))


def _create(wanted: Any, total: int, call: Call, node: Node) -> Message:
    check_request(total)
    count = _partition_count(wanted, node)
    settings = {config.name: config.value or "" for config in wanted.configs}
    with_overrides(node.options.log_config, settings)
    topic = None
    if call.body.validate_only:
        node.topics.check_new(wanted.name, count)
    else:
        topic = node.topics.create(wanted.name, count, settings)
    return {
        "topic_id": topic and topic.id,
        "num_partitions": count,
        "replication_factor": len(node.state.node_ids),
        "configs": [
            created_config(config) for config in topic_configs(node.options.log_config, settings)
        ],
    }


def _partition_count(wanted: Any, node: Node) -> int:
    if wanted.assignments:
        return _assigned_count(wanted, node)
    nodes = len(node.state.node_ids)
    if wanted.replication_factor not in (_DEFAULT, *range(1, nodes + 1)):
        raise BrokerError(ErrorCode.invalid_replication_factor, f"number of nodes: {nodes}")
    return _resolve(wanted.num_partitions, node)


def _resolve(count: int, node: Node) -> int:
    return node.options.default_partitions if count == _DEFAULT else count


def _assigned_count(wanted: Any, node: Node) -> int:
    numbers = sorted(part.partition_index for part in wanted.assignments)
    replicas = {node_id for part in wanted.assignments for node_id in part.broker_ids}
    known = set(node.state.node_ids)
    if numbers != list(range(len(numbers))) or not replicas or replicas - known:
        raise BrokerError(
            ErrorCode.invalid_replica_assignment,
            f"partitions count from 0 and have replicas out of {sorted(known)}",
        )
    return len(numbers)


def delete_topics(call: Call, node: Node) -> Message:
    """Delete topics. They can no longer be read when the answer is sent.

    Their files are deleted later.
    """

    def one(name: str | None, topic_id: uuid.UUID | None) -> Message:
        asked = {"name": name, "topic_id": topic_id}
        return or_error(asked, _delete_topic, name, topic_id, node)

    if hasattr(call.body, "topics"):
        return {"responses": [one(topic.name, topic.topic_id) for topic in call.body.topics]}
    return {"responses": [one(name, None) for name in call.body.topic_names]}


def _delete_topic(name: str | None, topic_id: uuid.UUID | None, node: Node) -> Message:
    topic = node.topic(name, topic_id)
    if topic.is_internal:
        raise BrokerError(ErrorCode.invalid_topic_exception, f"{topic.name} is the broker's own")
    node.topics.delete(topic.name, node.options.clock.wall_ms())
    node.groups.forget_topic(topic.name)
    node.state.forget(log.where for log in topic.partitions)
    for log in topic.partitions:
        node.purgatory.wake(log.where)
    return {"name": topic.name, "topic_id": topic.id}


def delete_records(call: Call, node: Node) -> Message:
    """Delete the records before an offset (-1: all records) in each partition.

    The answer has the new start of each log.
    """

    def one(topic: str, part: Any) -> Message:
        fields = {"partition_index": part.partition_index, "low_watermark": -1}
        return or_error(fields, _delete_records, topic, part, node)

    return {"topics": by_topic(call.body.topics, one)}


def _delete_records(topic: str, part: Any, node: Node) -> Message:
    log = node.partition(node.topic(topic, None), part.partition_index)
    return {"low_watermark": log.delete_records(part.offset)}


def create_partitions(call: Call, node: Node) -> Message:
    """Give each topic the requested number of partitions. Each topic may be refused on its own.

    If the request asks for too many new partitions in total, all topics are refused.
    """
    total = sum(_added(wanted, node) for wanted in call.body.topics)
    return {
        "results": [
            or_error({"name": wanted.name}, _extend, wanted, total, call, node)
            for wanted in call.body.topics
        ]
    }


def _added(wanted: Any, node: Node) -> int:
    known = node.topics.find(wanted.name)
    return 0 if known is None else max(0, wanted.count - len(known.partitions))


def _extend(wanted: Any, total: int, call: Call, node: Node) -> Message:
    check_request(total)
    if call.body.validate_only:
        node.topics.check_extension(wanted.name, wanted.count)
    else:
        node.topics.extend(wanted.name, wanted.count)
    return {}
