"""LeaveGroup (13): members say that they go."""

from __future__ import annotations

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def leave_group(call: Call, node: Node) -> Message:
    """Each is answered for itself; before version 3 there is one."""
    body = call.body
    if hasattr(body, "members"):
        members = [(one.member_id, one.group_instance_id) for one in body.members]
    else:
        members = [(body.member_id, None)]
    try:
        node.check_coordinates(body.group_id)
    except BrokerError as error:
        return {"error_code": error.code}
    found = node.groups.leave(body.group_id, members)
    if not isinstance(found, list):
        return {"error_code": found}
    if not hasattr(body, "members"):
        return {"error_code": found[0]}
    return {
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for (member_id, instance_id), error in zip(members, found, strict=True)
        ]
    }
