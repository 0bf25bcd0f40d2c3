"""Groups: JoinGroup (11) to ListGroups (16), DeleteGroups (42)."""

from __future__ import annotations

from dataclasses import asdict

from kio.schema.errors import ErrorCode

from kprod.broker.groups.group import (
    ConsumerGroup,
    GroupState,
    JoinAnswer,
    JoinRequest,
    SyncRequest,
)
from kprod.broker.node import Call, Give, Later, Node, or_error
from kprod.broker.protocol.messages import Message
from kprod.errors import BrokerError

_FIRST_WITH_REQUIRED_IDS = 4


def join_group(call: Call, node: Node) -> Message | Later:
    """Handle JoinGroup. The answer may have to wait until all members have joined."""
    try:
        node.check_coordinates(call.body.group_id)
    except BrokerError as error:
        return {
            "error_code": error.code,
            "generation_id": -1,
            "protocol_name": "",
            "member_id": call.body.member_id,
        }
    return Later(lambda give: _join(call, node, give))


def _join(call: Call, node: Node, give: Give) -> None:
    body = call.body
    session = body.session_timeout.total_seconds()
    rebalance = getattr(body, "rebalance_timeout", body.session_timeout).total_seconds()
    request = JoinRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=call.client_id or "",
        client_host=f"/{call.session.peer.rpartition(':')[0]}",
        session_timeout=session,
        rebalance_timeout=rebalance if rebalance >= 0 else session,
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        knows_required_ids=call.version >= _FIRST_WITH_REQUIRED_IDS,
    )
    node.groups.join(body.group_id, request, lambda answer: give(_joined(answer, call)))


def _joined(answer: JoinAnswer, call: Call) -> Message:
    # Before version 7 the name cannot be null: no strategy is an empty name.
    protocol = answer.protocol_name if call.version >= 7 else answer.protocol_name or ""
    return {**asdict(answer), "protocol_name": protocol}


def heartbeat(call: Call, node: Node) -> Message:
    """Handle Heartbeat.

    The error is 27 if the member must join again, and 25 or 22 if the group has continued without
    the member.
    """
    body = call.body
    instance_id = getattr(body, "group_instance_id", None)
    node.check_coordinates(body.group_id)
    return {
        "error_code": node.groups.heartbeat(
            body.group_id, body.member_id, instance_id, body.generation_id
        )
    }


def leave_group(call: Call, node: Node) -> Message:
    """Handle LeaveGroup. Each member in the request gets its own error code.

    Before version 3, a request names only one member.
    """
    body = call.body
    if hasattr(body, "members"):
        members = [(one.member_id, one.group_instance_id) for one in body.members]
    else:
        members = [(body.member_id, None)]
    node.check_coordinates(body.group_id)
    found = node.groups.leave(body.group_id, members)
    if not hasattr(body, "members"):
        return {"error_code": found[0]}
    return {
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for (member_id, instance_id), error in zip(members, found, strict=True)
        ]
    }


_FIRST_WITH_PROTOCOL = 5


def sync_group(call: Call, node: Node) -> Message | Later:
    """Handle SyncGroup. The answer is sent when the leader has sent the assignment."""
    if call.version >= _FIRST_WITH_PROTOCOL and None in (
        call.body.protocol_type,
        call.body.protocol_name,
    ):
        return {"error_code": ErrorCode.inconsistent_group_protocol}
    node.check_coordinates(call.body.group_id)
    return Later(lambda give: _sync(call, node, give))


def _sync(call: Call, node: Node, give: Give) -> None:
    body = call.body
    request = SyncRequest(
        generation=body.generation_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        protocol_type=getattr(body, "protocol_type", None),
        protocol=getattr(body, "protocol_name", None),
        assignments=tuple((one.member_id, one.assignment) for one in body.assignments),
    )
    node.groups.sync(body.group_id, request, lambda answer: give(asdict(answer)))


_FIRST_WITH_NOT_FOUND = 6


def describe_groups(call: Call, node: Node) -> Message:
    """Return the states and members of groups.

    An unknown group is described as "Dead"; from version 6 on, the answer also has error 69.
    """

    def one(group_id: str) -> Message:
        empty = dict.fromkeys(("group_state", "protocol_type", "protocol_data"), "")
        return or_error({"group_id": group_id, **empty}, _describe, group_id, call, node)

    return {"groups": [one(group_id) for group_id in dict.fromkeys(call.body.groups)]}


def _describe(group_id: str, call: Call, node: Node) -> Message:
    node.check_coordinates(group_id)
    with node.groups.group(group_id) as group:
        if group is None:
            found = call.version < _FIRST_WITH_NOT_FOUND
            code = ErrorCode.none if found else ErrorCode.group_id_not_found
            return {"error_code": code, "group_state": GroupState.DEAD.value}
        return _described(group)


def _described(group: ConsumerGroup) -> Message:
    stable = group.state is GroupState.STABLE
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.joined.instance_id,
                "client_id": member.joined.client_id,
                "client_host": member.joined.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
        "authorized_operations": -(2**31),
    }


_TYPE = "classic"


def list_groups(call: Call, node: Node) -> Message:
    """List the groups that this node coordinates, filtered by the request's states and types."""
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
            if node.coordinator(group.group_id) == node.node_id
            and (not states or group.state.value.lower() in states)
            and (not types or _TYPE in types)
        ]
    }


def delete_groups(call: Call, node: Node) -> Message:
    """Delete groups. The error is 69 for an unknown group, 68 for a group with members."""
    return {
        "results": [
            or_error({"group_id": group_id}, _delete, group_id, node)
            for group_id in call.body.groups_names
        ]
    }


def _delete(group_id: str, node: Node) -> Message:
    node.check_coordinates(group_id)
    node.groups.delete(group_id)
    return {}
