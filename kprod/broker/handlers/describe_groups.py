"""DescribeGroups (15): the members of groups and what they consume."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.groups.group import ConsumerGroup, GroupState
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError

_FIRST_WITH_NOT_FOUND = 6


def describe_groups(call: Call, node: Node) -> Message:
    """A group nobody knows is "Dead", and from version 6 on an error as well."""
    wanted = dict.fromkeys(call.body.groups)
    return {"groups": [_describe(group_id, call, node) for group_id in wanted]}


def _describe(group_id: str, call: Call, node: Node) -> Message:
    answer = {"group_id": group_id, "group_state": "", "protocol_type": "", "protocol_data": ""}
    try:
        node.check_coordinates(group_id)
    except BrokerError as error:
        return {**answer, "error_code": error.code}
    with node.groups.group(group_id) as group:
        if group is None:
            found = call.version < _FIRST_WITH_NOT_FOUND
            code = ErrorCode.none if found else ErrorCode.group_id_not_found
            return {**answer, "error_code": code, "group_state": GroupState.DEAD.value}
        return {**answer, **_message(group)}


def _message(group: ConsumerGroup) -> Message:
    stable = group.state is GroupState.STABLE
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
        "authorized_operations": -(2**31),
    }
