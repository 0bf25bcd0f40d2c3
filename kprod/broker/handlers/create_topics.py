"""CreateTopics (19)."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.topic_configs import topic_configs, with_overrides
from kprod.broker.topics import check_request
from kprod.errors import BrokerError

_DEFAULT: Final = -1


def create_topics(call: Call, node: Node) -> Message:
    """Each topic is made, or refused for itself; all are refused where they are too many."""
    total = sum(_asked(wanted, node) for wanted in call.body.topics)
    return {"topics": [_create(wanted, total, call, node) for wanted in call.body.topics]}


def _asked(wanted: Any, node: Node) -> int:
    return max(0, len(wanted.assignments) or _resolve(wanted.num_partitions, node))


def _create(wanted: Any, total: int, call: Call, node: Node) -> Message:
    try:
        check_request(total)
        count = _partition_count(wanted, node)
        settings = {config.name: config.value or "" for config in wanted.configs}
        with_overrides(node.log_config, settings)
        node.topics.check_new(wanted.name, count)
        topic = None
        if not call.body.validate_only:
            topic = node.topics.create(wanted.name, count, settings)
    except BrokerError as error:
        return {"name": wanted.name, "error_code": error.code, "error_message": str(error)}
    return {
        "name": wanted.name,
        "topic_id": topic and topic.id,
        "error_message": None,
        "num_partitions": count,
        "replication_factor": len(node.state.node_ids),
        "configs": [config.as_created() for config in topic_configs(node.log_config, settings)],
    }


def _partition_count(wanted: Any, node: Node) -> int:
    if wanted.assignments:
        return _assigned_count(wanted, node)
    nodes = len(node.state.node_ids)
    if wanted.replication_factor not in (_DEFAULT, *range(1, nodes + 1)):
        raise BrokerError(ErrorCode.invalid_replication_factor, f"number of nodes: {nodes}")
    return _resolve(wanted.num_partitions, node)


def _resolve(count: int, node: Node) -> int:
    return node.default_partitions if count == _DEFAULT else count


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
