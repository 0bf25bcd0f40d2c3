"""DeleteGroups (42): forget groups and what they committed."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def delete_groups(call: Call, node: Node) -> Message:
    """69 for a group nobody knows, 68 for one that has members."""
    return {
        "results": [
            {"group_id": group_id, "error_code": _delete(group_id, node)}
            for group_id in call.body.groups_names
        ]
    }


def _delete(group_id: str, node: Node) -> ErrorCode:
    try:
        node.check_coordinates(group_id)
    except BrokerError as error:
        return ErrorCode(error.code)
    return node.groups.delete(group_id)
