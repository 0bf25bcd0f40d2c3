"""CreateTopics (19)."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.log.log_directory import NODE_ID
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.topic_configs import topic_configs
from kprod.errors import BrokerError

_DEFAULT: Final = -1
_REPLICATION: Final = 1


def create_topics(call: Call, node: Node) -> Message:
    """Each topic is made, or refused for itself."""
    return {"topics": [_create(wanted, call, node) for wanted in call.body.topics]}


def _create(wanted: Any, call: Call, node: Node) -> Message:
    try:
        count = _partition_count(wanted, node)
        _check_configs(wanted, node)
        node.topics.check_new(wanted.name, count)
        topic = None if call.body.validate_only else node.topics.create(wanted.name, count)
    except BrokerError as error:
        return {"name": wanted.name, "error_code": error.code, "error_message": str(error)}
    return {
        "name": wanted.name,
        "topic_id": topic and topic.id,
        "error_message": None,
        "num_partitions": count,
        "replication_factor": _REPLICATION,
        "configs": [config.as_created() for config in topic_configs(node.log_config)],
    }


def _partition_count(wanted: Any, node: Node) -> int:
    if wanted.assignments:
        return _assigned_count(wanted)
    if wanted.replication_factor not in (_DEFAULT, _REPLICATION):
        raise BrokerError(ErrorCode.invalid_replication_factor, "there is one node")
    return _resolve(wanted.num_partitions, node)


def _resolve(count: int, node: Node) -> int:
    return node.default_partitions if count == _DEFAULT else count


def _assigned_count(wanted: Any) -> int:
    numbers = sorted(part.partition_index for part in wanted.assignments)
    replicas = {tuple(part.broker_ids) for part in wanted.assignments}
    if numbers != list(range(len(numbers))) or replicas != {(NODE_ID,)}:
        raise BrokerError(
            ErrorCode.invalid_replica_assignment,
            f"partitions count from 0 and have the one replica {NODE_ID}",
        )
    return len(numbers)


def _check_configs(wanted: Any, node: Node) -> None:
    """Topics have no settings of their own: asking for what holds anyway is fine."""
    known = {config.name: config.value for config in topic_configs(node.log_config)}
    for config in wanted.configs:
        if known.get(config.name) != config.value:
            raise BrokerError(
                ErrorCode.invalid_config,
                f"{config.name}={config.value}: the embedded broker has "
                f"{known.get(config.name, 'no such setting')} for every topic",
            )
