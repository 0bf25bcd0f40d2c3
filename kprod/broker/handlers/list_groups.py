"""ListGroups (16)."""

from __future__ import annotations

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node

_TYPE = "classic"


def list_groups(call: Call, node: Node) -> Message:
    """All groups this node coordinates, of certain states and types if the client says so."""
    states = {state.lower() for state in getattr(call.body, "states_filter", ())}
    types = {kind.lower() for kind in getattr(call.body, "types_filter", ())}
    return {
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": _TYPE,
            }
            for group in node.groups.groups()
            if node.coordinates(group.group_id)
            and (not states or group.state.value.lower() in states)
            and (not types or _TYPE in types)
        ]
    }
