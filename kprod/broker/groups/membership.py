"""Handles the requests of a group's members: join, sync, heartbeat, leave, commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.groups.group import (
    ConsumerGroup,
    GroupMember,
    GroupState,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    SyncAnswer,
    SyncReply,
    SyncRequest,
)

_IN_GENERATION: Final = (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)


def join(
    group: ConsumerGroup,
    request: JoinRequest,
    reply: JoinReply,
    *,
    new_id: str,
    now: float,
    initial_delay: float = 0.0,
) -> None:
    """Handle JoinGroup. A member without an id gets ``new_id``.

    If the request leads to a rebalance, the answer is given when the next generation begins.
    Otherwise it is given immediately.
    """
    refused = _refusal_to_join(group, request)
    if refused is not None:
        group.answer(reply, JoinAnswer(error_code=refused, member_id=request.member_id))
    elif request.member_id and request.member_id not in group.pending:
        _rejoin(group, group.members[request.member_id], request, reply, now)
    elif not request.member_id and request.instance_id in group.static_members:
        _come_back(group, request, reply, new_id, now)
    elif not request.member_id and request.instance_id is None and request.knows_required_ids:
        group.pending[new_id] = now + request.session_timeout
        group.answer(reply, JoinAnswer(error_code=ErrorCode.member_id_required, member_id=new_id))
    else:
        _enter(group, request, reply, request.member_id or new_id, now, initial_delay)


def _refusal_to_join(group: ConsumerGroup, request: JoinRequest) -> ErrorCode | None:
    known = request.member_id in group.members or request.member_id in group.pending
    if request.member_id:
        fenced = _fenced(group, request.member_id, request.instance_id)
        if fenced is not None:
            return fenced
        if not known:
            return ErrorCode.unknown_member_id
    others = [m for m in group.members if m != request.member_id]
    alone = not others and request.member_id in group.members
    if not alone and not group.supports(request.protocol_type, request.protocols):
        return ErrorCode.inconsistent_group_protocol
    return None


def _fenced(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """Return the error if the instance id does not belong to this member; else None."""
    if instance_id is None:
        return None
    holder = group.static_members.get(instance_id)
    if holder is None:
        return ErrorCode.unknown_member_id
    return None if holder == member_id else ErrorCode.fenced_instance_id


def _enter(
    group: ConsumerGroup,
    request: JoinRequest,
    reply: JoinReply,
    member_id: str,
    now: float,
    initial_delay: float,
) -> None:
    group.protocol_type = request.protocol_type
    group.add(GroupMember(member_id, request, join=reply))
    group.join_rebalance(now, initial_delay)


def _rejoin(
    group: ConsumerGroup, member: GroupMember, request: JoinRequest, reply: JoinReply, now: float
) -> None:
    leads_on = group.state is GroupState.STABLE and group.leader == member.member_id
    same = member.joined.protocols == request.protocols
    if same and group.state in _IN_GENERATION and not leads_on:
        # Its answer was lost on the way, so it asks again: the generation is the same.
        member.refresh(now)
        group.answer(reply, group.current_join_answer(member))
        return
    if member.join is not None:
        group.answer(member.join, JoinAnswer(error_code=ErrorCode.unknown_member_id))
    member.joined = request
    member.join = reply
    group.join_rebalance(now)


def _come_back(
    group: ConsumerGroup, request: JoinRequest, reply: JoinReply, new_id: str, now: float
) -> None:
    member = group.members[group.static_members[request.instance_id or ""]]
    same = member.metadata(group.protocol) == dict(request.protocols).get(group.protocol or "")
    group.replace_static(member, new_id)
    member.joined = request
    member.refresh(now)
    group.changed = True
    if group.state is GroupState.STABLE and same:
        # A leader has the members, and the assignment stands: it need not compute one (KIP-814).
        leads = group.leader == member.member_id
        answer = replace(group.current_join_answer(member), skip_assignment=leads)
        group.answer(reply, answer)
        return
    member.join = reply
    group.join_rebalance(now)


def sync(group: ConsumerGroup, request: SyncRequest, reply: SyncReply, *, now: float) -> None:
    """Handle SyncGroup. The leader sends the assignment; each member gets its own part."""
    error = _refusal_to_sync(group, request)
    if error is not None:
        group.answer(reply, SyncAnswer(error_code=error))
        return
    member = group.members[request.member_id]
    member.refresh(now)
    if group.state is GroupState.STABLE:
        group.answer(reply, group.sync_answer(member))
        return
    group.refuse_sync(member, ErrorCode.unknown_member_id)
    member.sync = reply
    if group.leader == member.member_id:
        group.assign(dict(request.assignments), now)


def _refusal_to_sync(group: ConsumerGroup, request: SyncRequest) -> ErrorCode | None:
    error = check_member(group, request.member_id, request.instance_id, request.generation)
    if error is not None:
        return error
    for theirs, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol, group.protocol),
    ):
        if theirs is not None and theirs != ours:
            return ErrorCode.inconsistent_group_protocol
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return None if group.state in _IN_GENERATION else ErrorCode.unknown_member_id


def check_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode | None:
    """Return None if a request comes from a member of the current generation; else the error."""
    fenced = _fenced(group, member_id, instance_id)
    if fenced is not None:
        return fenced
    if member_id not in group.members:
        return ErrorCode.unknown_member_id
    return None if generation == group.generation else ErrorCode.illegal_generation


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: float
) -> ErrorCode:
    """Handle Heartbeat, which shows that the member is alive. Return the error code.

    The error code may tell the member to join again.
    """
    error = check_member(group, member_id, instance_id, generation)
    if error is not None:
        return error
    group.members[member_id].refresh(now)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def leave(group: ConsumerGroup, member_id: str, instance_id: str | None, now: float) -> ErrorCode:
    """Handle LeaveGroup for one member; return the error code.

    For a static member, the instance id is enough.
    """
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    fenced = _fenced(group, member_id, instance_id)
    if fenced is not None:
        return fenced
    if group.pending.pop(member_id, None) is not None:
        group.maybe_complete_join(now)
        return ErrorCode.none
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    group.drop(member, now)
    return ErrorCode.none


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    now: float,
    *,
    transactional: bool = False,
) -> ErrorCode | None:
    """Return None if the client may commit offsets; else the error.

    Members of the current generation may commit, except by OffsetCommit while the group waits for
    the assignment. If the group is empty, a client that names no generation may commit. A
    transactional producer from before KIP-447 may always commit, because it knows only the group
    id.
    """
    if generation < 0 and group.state is GroupState.EMPTY:
        return None
    if transactional and generation < 0 and not member_id and instance_id is None:
        return None
    error = check_member(group, member_id, instance_id, generation)
    if error is not None:
        return error
    if transactional:
        return None
    group.members[member_id].refresh(now)
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return None
