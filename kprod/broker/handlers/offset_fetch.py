"""OffsetFetch (9): where a group goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.groups.group_records import CommittedOffset
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError
from kprod.types import TopicPartition

_NOTHING = CommittedOffset(-1, -1, "", 0)


def offset_fetch(call: Call, node: Node) -> Message:
    """Offset -1 where nothing was committed; all partitions of the group when none is named.

    88 where that depends on a transaction, for a reader of what is committed (KIP-447).
    """
    if hasattr(call.body, "groups"):
        return {"groups": [_group(group, call, node) for group in call.body.groups]}
    answer = dict(_group(call.body, call, node))
    if answer["error_code"]:
        # Before version 8 clients look at the partitions first, before 2 at nothing else.
        answer["topics"] = [
            _failed(topic, answer["error_code"]) for topic in call.body.topics or ()
        ]
    return answer


def _group(wanted: Any, call: Call, node: Node) -> Message:
    answer = {"group_id": wanted.group_id, "error_code": ErrorCode.none}
    try:
        node.check_coordinates(wanted.group_id)
    except BrokerError as error:
        return {**answer, "error_code": error.code, "topics": ()}
    committed = node.groups.committed(wanted.group_id)
    unstable = set()
    if getattr(call.body, "require_stable", False):
        unstable = node.groups.unstable(wanted.group_id)
    return {**answer, "topics": _topics(wanted.topics, committed, unstable)}


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
    waits = where in unstable
    found = _NOTHING if waits else committed.get(where, _NOTHING)
    return {
        "partition_index": where.partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": ErrorCode.unstable_offset_commit if waits else ErrorCode.none,
    }


def _failed(topic: Any, error: ErrorCode) -> Message:
    return {
        "name": topic.name,
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": -1,
                "metadata": "",
                "error_code": error,
            }
            for index in topic.partition_indexes
        ],
    }
