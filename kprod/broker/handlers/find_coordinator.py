"""FindCoordinator (10): the node for a group, or for a transactional id."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node

_GROUP: Final = 0
_TRANSACTION: Final = 1
_NOBODY: Final[Message] = {"node_id": -1, "host": "", "port": -1, "error_message": None}
_FIRST_WITH_MANY_KEYS: Final = 4


def find_coordinator(call: Call, node: Node) -> Message:
    """One answer for each key; 42 for a kind of key that there is no coordinator for."""
    if call.version < _FIRST_WITH_MANY_KEYS:
        return _answer(call, node, call.body.key)
    return {"coordinators": [_answer(call, node, key) for key in call.body.coordinator_keys]}


def _answer(call: Call, node: Node, key: str) -> Message:
    kind = getattr(call.body, "key_type", _GROUP)
    if kind == _GROUP:
        coordinator = node.coordinator(key)
    elif kind == _TRANSACTION:
        coordinator = node.transaction_coordinator(key)
    else:
        return {**_NOBODY, "key": key, "error_code": ErrorCode.invalid_request}
    if coordinator < 0:
        return {**_NOBODY, "key": key, "error_code": ErrorCode.coordinator_not_available}
    found = node.endpoint(coordinator, call.session)
    return {"key": key, "error_code": ErrorCode.none, "error_message": None, **found}
