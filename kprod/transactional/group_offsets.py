"""The offsets and the group of ``send_offsets_to_transaction``, in whatever form they come."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kprod.errors import InvalidRecordError, RecordTypeError
from kprod.types import TopicPartition
from kprod.wire.transactions import GroupMetadata, OffsetToCommit

__all__ = ["GroupMetadata", "Offsets", "group_member", "offsets_to_commit"]

MAX_INT64 = 2**63 - 1


Offsets: TypeAlias = Mapping[Any, Any] | Iterable[Any]
"""By ``(topic, partition)``: the offset of the record to read next, or an object with ``offset``,
and perhaps ``metadata`` and ``leader_epoch``, as kafka-python's OffsetAndMetadata. Or objects with
``topic``, ``partition`` and ``offset``, as confluent-kafka's TopicPartition."""


def group_member(group: object) -> GroupMetadata:
    """The member of a group, from the id of the group or an object with ``group_id``.

    Raises RecordTypeError for anything else, InvalidRecordError for an empty id.
    """
    if isinstance(group, str):
        member = GroupMetadata(group)
    else:
        group_id = getattr(group, "group_id", None)
        if not isinstance(group_id, str):
            raise RecordTypeError(
                "group_metadata: expected a group id, or an object with group_id, generation_id,"
                f" member_id and group_instance_id, got {type(group).__name__}"
            )
        member = GroupMetadata(
            group_id,
            _number("generation_id", getattr(group, "generation_id", -1)),
            getattr(group, "member_id", "") or "",
            getattr(group, "group_instance_id", None),
        )
    if not member.group_id:
        raise InvalidRecordError("group_metadata: the group id is empty")
    return member


def offsets_to_commit(offsets: Offsets) -> tuple[OffsetToCommit, ...]:
    """The offsets, each checked. Raises RecordTypeError and InvalidRecordError."""
    if isinstance(offsets, Mapping):
        found = [_of_item(place, offset) for place, offset in offsets.items()]
    elif isinstance(offsets, str | bytes) or not isinstance(offsets, Iterable):
        raise RecordTypeError(f"offsets: expected a mapping, got {type(offsets).__name__}")
    else:
        found = [_of_item(item, item) for item in offsets]
    places = {(offset.topic, offset.partition) for offset in found}
    if len(places) != len(found):
        raise InvalidRecordError("offsets: a partition is named twice")
    return tuple(found)


def _of_item(place: Any, offset: Any) -> OffsetToCommit:
    tp = _place(place)
    if hasattr(offset, "offset"):
        number = _number(f"offset of {tp}", offset.offset)
        metadata = getattr(offset, "metadata", "")
        epoch = getattr(offset, "leader_epoch", -1)
    else:
        number, metadata, epoch = _number(f"offset of {tp}", offset), "", -1
    if not 0 <= number <= MAX_INT64:
        raise InvalidRecordError(f"offsets: {tp}: expected 0 or more, got {number}")
    if metadata is not None and not isinstance(metadata, str):
        raise RecordTypeError(f"offsets: {tp}: metadata must be text, not {metadata!r}")
    return OffsetToCommit(tp.topic, tp.partition, number, -1 if epoch is None else epoch, metadata)


def _place(place: Any) -> TopicPartition:
    if isinstance(place, tuple) and len(place) >= 2:
        topic, partition = place[0], place[1]
    else:
        topic, partition = getattr(place, "topic", None), getattr(place, "partition", None)
    if not isinstance(topic, str) or partition is None:
        raise RecordTypeError(f"offsets: expected a topic and a partition, got {place!r}")
    return TopicPartition(topic, _number("partition", partition))


def _number(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise RecordTypeError(f"offsets: {what} must be a number, not {value!r}") from None
