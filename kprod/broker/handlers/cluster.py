"""Metadata (3), FindCoordinator (10), DescribeCluster (60): which node does what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.node import Call, Later, Node, one_by_one, or_error
from kprod.broker.protocol.messages import Message
from kprod.broker.topics import Topic, is_legal_name
from kprod.errors import BrokerError


def metadata(call: Call, node: Node) -> Message | Later | None:
    """Describe the nodes, and the requested topics or all.

    A requested topic that does not exist is created if both the client and the broker allow that.
    It is usable at once, while a client of a real cluster would have to ask again.
    """
    if _may_create(call, node) and any(_is_new(topic, node) for topic in call.body.topics or ()):
        return one_by_one(_metadata)(call, node)
    return _metadata(call, node)


def _may_create(call: Call, node: Node) -> bool:
    return node.options.auto_create_topics and getattr(call.body, "allow_auto_topic_creation", True)


def _is_new(wanted: Any, node: Node) -> bool:
    return wanted.name is not None and node.topics.find(wanted.name) is None


def _metadata(call: Call, node: Node) -> Message:
    return {
        "brokers": node.endpoints(call.session),
        "cluster_id": node.cluster_id,
        "controller_id": node.state.controller,
        "topics": list(_topics(call, node)),
    }


def _topics(call: Call, node: Node) -> Iterator[Message]:
    wanted = call.body.topics
    if wanted is None or (call.version == 0 and not wanted):
        yield from (_describe(topic, node) for topic in node.topics.all())
        return
    may_create = _may_create(call, node)
    for topic in dict.fromkeys(wanted):  # each once, as Kafka answers
        try:
            yield _describe(_find(topic, node, may_create), node)
        except BrokerError as error:
            yield {
                "error_code": error.code,
                # Only from version 12 on may a name be null, in the answer as in the request.
                "name": topic.name if call.version >= 12 else topic.name or "",
                "topic_id": getattr(topic, "topic_id", None),
            }


def _find(wanted: Any, node: Node, may_create: bool) -> Topic:
    if not _is_new(wanted, node):
        return node.topic(wanted.name, getattr(wanted, "topic_id", None))
    if not is_legal_name(wanted.name):
        raise BrokerError(ErrorCode.invalid_topic_exception)
    if not may_create:
        raise BrokerError(ErrorCode.unknown_topic_or_partition)
    try:
        return node.topics.find_or_create(wanted.name, *node.options.of_new_topic(wanted.name))
    except BrokerError as error:
        if error.code != ErrorCode.invalid_topic_exception:
            raise
        # The name is like another's. Kafka's brokers do not wait for the controller's refusal.
        raise BrokerError(ErrorCode.unknown_topic_or_partition, error.detail) from error


def _describe(topic: Topic, node: Node) -> Message:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": [_partition(log, node) for log in topic.partitions],
    }


def _partition(log: PartitionLog, node: Node) -> Message:
    # All nodes have the same disks: a partition on a disk that failed has no leader.
    running = () if log.offline else node.state.running
    leader = node.state.leader(log.where) if running else -1
    replicas = node.state.replicas(log.where)
    return {
        "error_code": ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
        "partition_index": log.where.partition,
        "leader_id": leader,
        "leader_epoch": log.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": [node_id for node_id in replicas if node_id in running],
        "offline_replicas": [node_id for node_id in replicas if node_id not in running],
    }


_GROUP: Final = 0
_TRANSACTION: Final = 1
_NOBODY: Final[Message] = {"node_id": -1, "host": "", "port": -1}
_FIRST_WITH_MANY_KEYS: Final = 4


def find_coordinator(call: Call, node: Node) -> Message:
    """Return the coordinator for each key.

    The error is 42 for keys that name neither groups nor transactional ids.
    """

    def one(key: str) -> Message:
        return or_error({**_NOBODY, "key": key}, _coordinator, call, node, key)

    if call.version < _FIRST_WITH_MANY_KEYS:
        return one(call.body.key)
    return {"coordinators": list(map(one, call.body.coordinator_keys))}


def _coordinator(call: Call, node: Node, key: str) -> Message:
    kind = getattr(call.body, "key_type", _GROUP)
    if kind == _GROUP:
        coordinator = node.coordinator(key)
    elif kind == _TRANSACTION:
        coordinator = node.transaction_coordinator(key)
    else:
        raise BrokerError(ErrorCode.invalid_request, f"key type {kind}")
    if coordinator < 0:
        raise BrokerError(ErrorCode.coordinator_not_available)
    return node.endpoint(coordinator, call.session)


def describe_cluster(call: Call, node: Node) -> Message:
    """Describe the running nodes, the first of which is the controller."""
    return {
        "cluster_id": node.cluster_id,
        "controller_id": node.state.controller,
        "brokers": [
            {**found, "broker_id": found["node_id"]} for found in node.endpoints(call.session)
        ],
    }
