"""JoinGroup (11): become a member of a group, or join its next generation."""

from __future__ import annotations

from kprod.broker.call import Call, Give, Later
from kprod.broker.groups.group_answers import JoinAnswer, JoinRequest
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError

_FIRST_WITH_REQUIRED_IDS = 4


def join_group(call: Call, node: Node) -> Message | Later:
    """The answer comes when everybody has joined, or the rebalance time-out is over."""
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
    node.groups.join(body.group_id, request, lambda answer: give(_message(answer, call)))


def _message(answer: JoinAnswer, call: Call) -> Message:
    # Before version 7 there is no null: "no strategy" is an empty name.
    protocol = answer.protocol if call.version >= 7 else answer.protocol or ""
    return {
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in answer.members
        ],
    }
