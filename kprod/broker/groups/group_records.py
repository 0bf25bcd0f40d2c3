"""The records of ``__consumer_offsets``: Kafka's own layout, so that its tools can read them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from kprod.broker.groups.group import ConsumerGroup, GroupState
from kprod.broker.groups.group_member import GroupMember
from kprod.types import TopicPartition

_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 3
_GROUP_VALUE: Final = 3
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Where a group goes on in one partition. ``committed_at`` is in milliseconds.

    ``record_offset`` is where that is written in the offsets topic: what is written later counts.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    record_offset: int = field(default=-1, compare=False)


OffsetKey = tuple[str, TopicPartition]
"""Group and partition."""


def offset_key(group_id: str, where: TopicPartition) -> bytes:
    """OffsetCommitKey, version 1."""
    return (
        struct.pack(">h", 1)
        + _text(group_id)
        + _text(where.topic)
        + struct.pack(">i", where.partition)
    )


def offset_value(committed: CommittedOffset) -> bytes:
    """OffsetCommitValue, version 3."""
    return (
        struct.pack(">hqi", _OFFSET_VALUE, committed.offset, committed.leader_epoch)
        + _text(committed.metadata)
        + struct.pack(">q", committed.committed_at)
    )


def group_key(group_id: str) -> bytes:
    """GroupMetadataKey, version 2."""
    return struct.pack(">h", _GROUP_KEY) + _text(group_id)


def group_value(group: ConsumerGroup, now_ms: int) -> bytes:
    """GroupMetadataValue, version 3."""
    stable = group.state is not GroupState.EMPTY
    parts = [
        struct.pack(">h", _GROUP_VALUE),
        _text(group.protocol_type or ""),
        struct.pack(">i", group.generation),
        _text(group.protocol if stable else None),
        _text(group.leader if stable else None),
        struct.pack(">qi", now_ms, len(group.members)),
    ]
    for member in group.members.values():
        parts += [
            _text(member.member_id),
            _text(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            struct.pack(
                ">ii",
                int(member.rebalance_timeout * _MILLISECONDS),
                int(member.session_timeout * _MILLISECONDS),
            ),
            _bytes(member.metadata(group.protocol)),
            _bytes(member.assignment),
        ]
    return b"".join(parts)


def read_key(data: bytes) -> OffsetKey | str | None:
    """Group and partition for an offset, the group's id for a group, None for anything newer."""
    reader = _Reader(data)
    version = reader.number(">h")
    if version in _OFFSET_KEYS:
        return reader.text() or "", TopicPartition(reader.text() or "", reader.number(">i"))
    return reader.text() if version == _GROUP_KEY else None


def read_offset(data: bytes) -> CommittedOffset | None:
    """OffsetCommitValue, versions 0 to 4; None for anything newer."""
    reader = _Reader(data)
    version = reader.number(">h")
    offset = reader.number(">q")
    if version in (0, 1, 2):
        return CommittedOffset(offset, -1, reader.text() or "", reader.number(">q"))
    if version == _OFFSET_VALUE:
        epoch = reader.number(">i")
        return CommittedOffset(offset, epoch, reader.text() or "", reader.number(">q"))
    return None


def read_group(group_id: str, data: bytes, now: float) -> ConsumerGroup | None:
    """GroupMetadataValue, version 3; None for another. Members have a session time-out to live."""
    reader = _Reader(data)
    if reader.number(">h") != _GROUP_VALUE:
        return None
    group = ConsumerGroup(group_id)
    group.protocol_type = reader.text() or None
    group.generation = reader.number(">i")
    group.protocol = reader.text()
    leader = reader.text()
    reader.number(">q")
    for _ in range(reader.number(">i")):
        group.add(_member(reader, group.protocol, now))
    group.leader = leader
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    return group


def _member(reader: _Reader, protocol: str | None, now: float) -> GroupMember:
    member_id, instance_id = reader.text() or "", reader.text()
    client_id, client_host = reader.text() or "", reader.text() or ""
    rebalance, session = reader.number(">i"), reader.number(">i")
    subscription, assignment = reader.blob(), reader.blob()
    member = GroupMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        session / _MILLISECONDS,
        rebalance / _MILLISECONDS,
        ((protocol or "", subscription),),
        assignment,
    )
    member.refresh(now)
    return member


def _text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


class _Reader:
    """Reads fields one after the other; ``struct.error`` where the bytes end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        found: int = value
        return found

    def text(self) -> str | None:
        length = self.number(">h")
        return None if length < 0 else self._take(length).decode()

    def blob(self) -> bytes:
        return self._take(max(self.number(">i"), 0))

    def _take(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) < length:
            raise struct.error("the record ends early")
        self._at += length
        return found
