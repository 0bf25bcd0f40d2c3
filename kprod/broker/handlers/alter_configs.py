"""AlterConfigs (33) and IncrementalAlterConfigs (44): the settings of topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.topic_configs import KEYS, topic_configs, with_overrides
from kprod.errors import BrokerError

_TOPIC: Final = 2
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LISTS: Final = frozenset({"cleanup.policy"})

Settings = dict[str, str]


def alter_configs(call: Call, node: Node) -> Message:
    """All of a topic's own settings are replaced."""

    def replaced(wanted: Any) -> Settings:
        return {config.name: _value(config) for config in wanted.configs}

    return _alter(call, node, replaced)


def incremental_alter_configs(call: Call, node: Node) -> Message:
    """Single settings are set, unset, or have values added and taken away."""

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
        now = {c.name: c.value for c in topic_configs(node.log_config, settings)}[name].split(",")
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
    return {"responses": [_resource(one, call, node, wanted) for one in call.body.resources]}


def _resource(one: Any, call: Call, node: Node, wanted: Callable[[Any], Settings]) -> Message:
    answer = {
        "error_message": None,
        "resource_type": one.resource_type,
        "resource_name": one.resource_name,
    }
    try:
        if one.resource_type != _TOPIC:
            raise BrokerError(ErrorCode.invalid_request, "only topics have settings of their own")
        node.topic(one.resource_name, None)
        settings = wanted(one)
        with_overrides(node.log_config, settings)
        if not call.body.validate_only:
            node.topics.configure(one.resource_name, settings)
    except BrokerError as error:
        return {**answer, "error_code": error.code, "error_message": str(error)}
    return answer
