"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44): settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.log.log_config import KEYS, TopicConfig, topic_configs, with_overrides
from kprod.broker.node import Call, Node, or_error
from kprod.broker.protocol.messages import Message
from kprod.errors import BrokerError

_TOPIC: Final = 2
_FROM_TOPIC: Final = 1
_FROM_BROKER: Final = 4
_BROKER: Final = 4


def describe_configs(call: Call, node: Node) -> Message:
    """Return the settings of topics and of nodes. Those of a node are the defaults for topics."""
    wanted = dict.fromkeys(call.body.resources)
    return {"results": [or_error(_named(one), _describe, one, node) for one in wanted]}


def _named(resource: Any) -> Message:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


def _describe(wanted: Any, node: Node) -> Message:
    _check(wanted, node)
    keys = wanted.configuration_keys
    configs = [
        {
            **created_config(config),
            "is_default": not config.is_own,
            "config_type": config.type,
            "documentation": None,
        }
        for config in topic_configs(node.options.log_config, _own(wanted, node))
        if keys is None or config.name in keys
    ]
    return {"configs": configs}


def created_config(config: TopicConfig) -> Message:
    """Describe a setting, as CreateTopics and DescribeConfigs do."""
    return {
        "name": config.name,
        "value": config.value,
        "config_source": _FROM_TOPIC if config.is_own else _FROM_BROKER,
    }


def _own(wanted: Any, node: Node) -> Mapping[str, str]:
    return node.topics.settings(wanted.resource_name) if wanted.resource_type == _TOPIC else {}


def _check(wanted: Any, node: Node) -> None:
    if wanted.resource_type == _TOPIC:
        node.topic(wanted.resource_name, None)
        return
    nodes = ("", *map(str, node.state.node_ids))
    if wanted.resource_type != _BROKER or wanted.resource_name not in nodes:
        raise BrokerError(ErrorCode.invalid_request, "only topics and nodes have settings")


_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LISTS: Final = frozenset({"cleanup.policy"})

Settings = dict[str, str]


def alter_configs(call: Call, node: Node) -> Message:
    """Replace all of a topic's own settings."""

    def replaced(wanted: Any) -> Settings:
        return {config.name: _value(config) for config in wanted.configs}

    return _alter(call, node, replaced)


def incremental_alter_configs(call: Call, node: Node) -> Message:
    """Set or unset single settings of a topic; add values to a list or remove them from it."""

    def changed(wanted: Any) -> Settings:
        settings = dict(node.topics.settings(wanted.resource_name))
        for config in wanted.configs:
            _change(settings, config, node)
        return settings

    return _alter(call, node, changed)


def _change(settings: Settings, config: Any, node: Node) -> None:
    name, operation = config.name, config.config_operation
    if name not in KEYS:
        raise BrokerError(ErrorCode.invalid_config, f"{name}: there is no such setting")
    if operation == _DELETE:
        settings.pop(name, None)
    elif operation == _SET:
        settings[name] = _value(config)
    elif operation in (_APPEND, _SUBTRACT) and name in _LISTS:
        now = {c.name: c.value for c in topic_configs(node.options.log_config, settings)}[
            name
        ].split(",")
        given = _value(config).split(",")
        kept = [part for part in now if part not in given]
        settings[name] = ",".join(kept + given if operation == _APPEND else kept)
    else:
        raise BrokerError(ErrorCode.invalid_config, f"operation {operation} on {name}")


def _value(config: Any) -> str:
    if config.value is None:
        raise BrokerError(ErrorCode.invalid_config, f"{config.name} has no value")
    value: str = config.value
    return value


def _alter(call: Call, node: Node, wanted: Callable[[Any], Settings]) -> Message:
    def alter(one: Any) -> Message:
        if one.resource_type != _TOPIC:
            raise BrokerError(ErrorCode.invalid_request, "only topics have settings of their own")
        node.topic(one.resource_name, None)
        settings = wanted(one)
        with_overrides(node.options.log_config, settings)
        if not call.body.validate_only:
            node.topics.configure(one.resource_name, settings)
        return {}

    return {"responses": [or_error(_named(one), alter, one) for one in call.body.resources]}
