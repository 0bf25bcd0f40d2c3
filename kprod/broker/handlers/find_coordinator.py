"""FindCoordinator (10): this node for groups, nobody for transactions."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.log.log_directory import NODE_ID
from kprod.broker.messages import Message
from kprod.broker.node import Node

_GROUP: Final = 0
_FIRST_WITH_MANY_KEYS: Final = 4


def find_coordinator(call: Call, node: Node) -> Message:
    """A consumer that assigns partitions itself may ask for its group, and finds no offsets there.

    A transactional producer is told that its id is not allowed, an error every client gives up on.
    """
    if call.version < _FIRST_WITH_MANY_KEYS:
        return _answer(call, node, call.body.key)
    return {"coordinators": [_answer(call, node, key) for key in call.body.coordinator_keys]}


def _answer(call: Call, node: Node, key: str) -> Message:
    if getattr(call.body, "key_type", _GROUP) == _GROUP:
        found = {"node_id": NODE_ID, "host": node.host, "port": node.port}
        return {"key": key, "error_code": ErrorCode.none, "error_message": None, **found}
    return {
        "key": key,
        "error_code": ErrorCode.transactional_id_authorization_failed,
        "error_message": "the embedded broker has no transactions",
        "node_id": -1,
        "port": -1,
    }
