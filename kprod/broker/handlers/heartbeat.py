"""Heartbeat (12): a member is alive."""

from __future__ import annotations

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def heartbeat(call: Call, node: Node) -> Message:
    """27 tells the member to join again, 25 and 22 that the group went on without it."""
    body = call.body
    instance_id = getattr(body, "group_instance_id", None)
    try:
        node.check_coordinates(body.group_id)
    except BrokerError as error:
        return {"error_code": error.code}
    return {
        "error_code": node.groups.heartbeat(
            body.group_id, body.member_id, instance_id, body.generation_id
        )
    }
