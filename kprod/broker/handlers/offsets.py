"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28), OffsetDelete (47)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.groups.offsets_topic import CommittedOffset, OffsetsTransaction
from kprod.broker.handlers.transactions import verified
from kprod.broker.node import Call, Node, by_topic, or_error
from kprod.broker.protocol.messages import Message
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError
from kprod.types import TopicPartition


def offset_commit(call: Call, node: Node) -> Message:
    """Commit offsets. The answer is sent when they are in the log of the offsets topic."""
    return _commit_known(call, node, _commit)


_Offsets = dict[TopicPartition, tuple[int, int, str]]
"""Offset, leader epoch and metadata by partition."""


def _commit_known(
    call: Call, node: Node, commit: Callable[[Call, Node, _Offsets], Mapping[TopicPartition, int]]
) -> Message:
    """Commit the offsets of partitions that exist. The others get error 3."""
    wanted = {
        TopicPartition(topic.name, part.partition_index): (
            part.committed_offset,
            getattr(part, "committed_leader_epoch", -1),
            part.committed_metadata or "",
        )
        for topic in call.body.topics
        for part in topic.partitions
    }
    known = {where: values for where, values in wanted.items() if node.has_partition(where)}
    errors: dict[TopicPartition, int] = dict.fromkeys(wanted, ErrorCode.unknown_topic_or_partition)
    try:
        errors.update(commit(call, node, known))
    except BrokerError as error:
        errors.update(dict.fromkeys(known, error.code))
    return _offsets_answer(call, errors)


def _offsets_answer(call: Call, errors: Mapping[TopicPartition, int]) -> Message:

    def one(topic: str, part: Any) -> Message:
        error = errors[TopicPartition(topic, part.partition_index)]
        return {"partition_index": part.partition_index, "error_code": error}

    return {"topics": by_topic(call.body.topics, one)}


def _commit(call: Call, node: Node, offsets: _Offsets) -> Mapping[TopicPartition, int]:
    body = call.body
    node.check_coordinates(body.group_id)
    return node.groups.commit(
        body.group_id,
        offsets,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=getattr(body, "generation_id_or_member_epoch", -1),
    )


_NOTHING = CommittedOffset(-1, -1, "", 0)


def offset_fetch(call: Call, node: Node) -> Message:
    """Return a group's committed offsets; -1 for partitions without one.

    If the request names no partitions, all partitions with an offset are returned. If the client
    requires stable offsets (KIP-447), the error is 88 for each offset that an open transaction may
    change.
    """

    def one(wanted: Any) -> Message:
        return or_error({"group_id": wanted.group_id}, _group, wanted, call, node)

    if hasattr(call.body, "groups"):
        return {"groups": list(map(one, call.body.groups))}
    answer = one(call.body)
    error = answer.get("error_code", ErrorCode.none)
    if not error:
        return answer
    # Before version 8 clients look at the partitions first, before 2 at nothing else.
    failed = [
        {"name": topic.name, "partitions": [_part(at, error) for at in topic.partition_indexes]}
        for topic in call.body.topics or ()
    ]
    return {**answer, "topics": failed}


def _group(wanted: Any, call: Call, node: Node) -> Message:
    node.check_coordinates(wanted.group_id)
    committed = node.groups.committed(wanted.group_id)
    unstable = set()
    if getattr(call.body, "require_stable", False):
        unstable = node.groups.unstable(wanted.group_id)
    return {"topics": _topics(wanted.topics, committed, unstable)}


def _topics(
    wanted: Iterable[Any] | None,
    committed: dict[TopicPartition, CommittedOffset],
    unstable: Collection[TopicPartition],
) -> list[Message]:
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        for where in sorted({*committed, *unstable}):
            by_topic.setdefault(where.topic, []).append(where.partition)
    else:
        by_topic = {topic.name: list(topic.partition_indexes) for topic in wanted}
    return [
        {
            "name": name,
            "partitions": [
                _partition(TopicPartition(name, index), committed, unstable) for index in partitions
            ],
        }
        for name, partitions in by_topic.items()
    ]


def _partition(
    where: TopicPartition,
    committed: dict[TopicPartition, CommittedOffset],
    unstable: Collection[TopicPartition],
) -> Message:
    if where in unstable:
        return _part(where.partition, ErrorCode.unstable_offset_commit)
    return _part(where.partition, ErrorCode.none, committed.get(where, _NOTHING))


def _part(index: int, error: int, found: CommittedOffset = _NOTHING) -> Message:
    return {
        "partition_index": index,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": error,
    }


_FIRST_WITH_ABORTABLE: Final = 4
_FIRST_THAT_ADDS: Final = 5


def txn_offset_commit(call: Call, node: Node) -> Message:
    """Commit offsets in a transaction. They are pending until its marker is written."""
    return _commit_known(call, node, _commit_pending)


def _commit_pending(call: Call, node: Node, offsets: _Offsets) -> Mapping[TopicPartition, int]:
    body = call.body
    if not offsets:
        return {}
    node.check_coordinates(body.group_id)
    identity = ProducerIdentity(body.producer_id, body.producer_epoch)
    guard = verified(
        node,
        node.groups.offsets_log_of(body.group_id),
        body.transactional_id,
        identity,
        adds=call.version >= _FIRST_THAT_ADDS,
        knows_abortable=call.version >= _FIRST_WITH_ABORTABLE,
        busy=ErrorCode.coordinator_not_available,
    )
    return node.groups.commit(
        body.group_id,
        offsets,
        member_id=getattr(body, "member_id", ""),
        instance_id=getattr(body, "group_instance_id", None),
        generation=getattr(body, "generation_id", -1),
        transaction=OffsetsTransaction(*identity, guard),
    )


def offset_delete(call: Call, node: Node) -> Message:
    """Delete offsets of a group. The error is 69 for an unknown group, 68 for one with members."""
    wanted = [
        TopicPartition(topic.name, part.partition_index)
        for topic in call.body.topics
        for part in topic.partitions
    ]
    node.check_coordinates(call.body.group_id)
    node.groups.delete_offsets(call.body.group_id, wanted)
    return _offsets_answer(call, dict.fromkeys(wanted, ErrorCode.none))
