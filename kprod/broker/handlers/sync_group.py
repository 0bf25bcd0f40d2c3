"""SyncGroup (14): the leader brings the assignment, every member gets its share."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call, Give, Later
from kprod.broker.groups.group_answers import SyncAnswer, SyncRequest
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError

_FIRST_WITH_PROTOCOL = 5


def sync_group(call: Call, node: Node) -> Message | Later:
    """The answer comes with the leader's."""
    if call.version >= _FIRST_WITH_PROTOCOL and None in (
        call.body.protocol_type,
        call.body.protocol_name,
    ):
        return {"error_code": ErrorCode.inconsistent_group_protocol}
    try:
        node.check_coordinates(call.body.group_id)
    except BrokerError as error:
        return {"error_code": error.code}
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
    node.groups.sync(body.group_id, request, lambda answer: give(_message(answer)))


def _message(answer: SyncAnswer) -> Message:
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }
