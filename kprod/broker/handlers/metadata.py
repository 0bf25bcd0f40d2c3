"""Metadata (3): the node, and where the partitions of topics are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.log.log_directory import NODE_ID
from kprod.broker.log.partition_log import LEADER_EPOCH, PartitionLog
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.topic import Topic, is_legal_name
from kprod.errors import BrokerError


def metadata(call: Call, node: Node) -> Message:
    """The topics asked for, or all; an unknown one is made if both the client and we want that.

    It is then there at once: a client need not ask again, as it must with a cluster.
    """
    return {
        "brokers": [node.endpoint],
        "cluster_id": node.cluster_id,
        "controller_id": NODE_ID,
        "topics": list(_topics(call, node)),
    }


def _topics(call: Call, node: Node) -> Iterator[Message]:
    wanted = call.body.topics
    if wanted is None or (call.version == 0 and not wanted):
        yield from map(_describe, node.topics.all())
        return
    may_create = node.auto_create_topics and getattr(call.body, "allow_auto_topic_creation", True)
    for topic in wanted:
        try:
            yield _describe(_find(topic, node, may_create))
        except BrokerError as error:
            yield {
                "error_code": error.code,
                "name": topic.name,
                "topic_id": getattr(topic, "topic_id", None),
            }


def _find(wanted: Any, node: Node, may_create: bool) -> Topic:
    if wanted.name is None or node.topics.find(wanted.name):
        return node.topic(wanted.name, getattr(wanted, "topic_id", None))
    if not is_legal_name(wanted.name):
        raise BrokerError(ErrorCode.invalid_topic_exception)
    if not may_create:
        raise BrokerError(ErrorCode.unknown_topic_or_partition)
    return node.topics.find_or_create(wanted.name, node.default_partitions)


def _describe(topic: Topic) -> Message:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "partitions": [_partition(log) for log in topic.partitions],
    }


def _partition(log: PartitionLog) -> Message:
    return {
        "partition_index": log.where.partition,
        "leader_id": NODE_ID,
        "leader_epoch": LEADER_EPOCH,
        "replica_nodes": (NODE_ID,),
        "isr_nodes": (NODE_ID,),
    }
