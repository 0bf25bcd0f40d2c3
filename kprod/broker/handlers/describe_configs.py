"""DescribeConfigs (32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.topic_configs import topic_configs

_TOPIC: Final = 2
_BROKER: Final = 4


def describe_configs(call: Call, node: Node) -> Message:
    """The settings of topics; of the node, the same ones, as they are its own."""
    return {"results": [_resource(wanted, node) for wanted in dict.fromkeys(call.body.resources)]}


def _resource(wanted: Any, node: Node) -> Message:
    answer = {
        "error_code": _error(wanted, node),
        "error_message": None,
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
    }
    if answer["error_code"]:
        return answer
    keys = wanted.configuration_keys
    configs = [
        config.as_described()
        for config in topic_configs(node.log_config, _own(wanted, node))
        if keys is None or config.name in keys
    ]
    return {**answer, "configs": configs}


def _own(wanted: Any, node: Node) -> Mapping[str, str]:
    return node.topics.settings(wanted.resource_name) if wanted.resource_type == _TOPIC else {}


def _error(wanted: Any, node: Node) -> ErrorCode:
    if wanted.resource_type == _TOPIC:
        found = node.topics.find(wanted.resource_name)
        return ErrorCode.none if found else ErrorCode.unknown_topic_or_partition
    if wanted.resource_type == _BROKER and wanted.resource_name in (
        "",
        *map(str, node.state.node_ids),
    ):
        return ErrorCode.none
    return ErrorCode.invalid_request
