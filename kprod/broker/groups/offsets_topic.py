"""What groups have committed: in memory, and in Kafka's own layout in __consumer_offsets."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kprod.broker.groups.group import ConsumerGroup, GroupMember, GroupState
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.producer_state import VerificationGuard
from kprod.broker.records.batch_writer import read_marker, write_batch
from kprod.broker.records.legacy_message import StoredBatch
from kprod.broker.records.record_batch import TRANSACTIONAL, BatchHeader, StoredRecord
from kprod.clock import Clock
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


OFFSETS_TOPIC: Final = "__consumer_offsets"
_log = logging.getLogger(__name__)

Entry = tuple[bytes, bytes | None]
"""Key and value of one record; a value of None deletes what the key stands for."""


class OffsetsTransaction(NamedTuple):
    """The transaction that offsets are committed in, and what its first batch takes."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None


def append_entries(
    log: PartitionLog,
    entries: Sequence[Entry],
    now_ms: int,
    transaction: OffsetsTransaction | None = None,
) -> int:
    """Write records, as one batch; returns the offset of the first.

    ``BrokerError`` 47 and 48 when its transaction is over, 56 when the disk fails.
    """
    if transaction is None:
        batch = write_batch(entries, now_ms)
        return log.append(BatchHeader.parse(batch), batch).base_offset
    producer = (transaction.producer_id, transaction.producer_epoch)
    batch = write_batch(entries, now_ms, TRANSACTIONAL, producer)
    return log.append(BatchHeader.parse(batch), batch, transaction.guard).base_offset


class OffsetsReader:
    """What a partition of the offsets topic says in the end: the last record of each key.

    ``pending`` are the offsets of transactions that are not decided, by producer id.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self.groups: dict[str, ConsumerGroup] = {}
        self.offsets: dict[OffsetKey, CommittedOffset] = {}
        self.pending: dict[int, dict[OffsetKey, CommittedOffset]] = {}

    def read(self, log: PartitionLog) -> None:
        """From the first record to the last; one that cannot be read is left out and logged."""
        for batch in log.batches():
            if batch.is_control:
                self._end_transaction(batch)
            else:
                for record in batch.records():
                    self._take(record, batch)

    def _end_transaction(self, batch: StoredBatch) -> None:
        marker = read_marker(batch)
        pending = {} if marker is None else self.pending.pop(marker.producer_id, {})
        if marker is not None and marker.committed:
            for key, committed in pending.items():
                present = self.offsets.get(key)
                if present is None or present.record_offset < committed.record_offset:
                    self.offsets[key] = committed

    def _take(self, record: StoredRecord, batch: StoredBatch) -> None:
        try:
            key = read_key(record.key or b"")
            if isinstance(key, str):
                self._take_group(key, record.value)
            elif key is not None and batch.is_transactional:
                self._take_offset(self.pending.setdefault(batch.producer_id, {}), key, record)
            elif key is not None:
                self._take_offset(self.offsets, key, record)
        except (struct.error, UnicodeDecodeError) as error:
            _log.warning("record %d of %s is not readable: %s", record.offset, OFFSETS_TOPIC, error)

    def _take_group(self, group_id: str, value: bytes | None) -> None:
        group = None if value is None else read_group(group_id, value, self._now)
        if group is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = group

    def _take_offset(
        self, offsets: dict[OffsetKey, CommittedOffset], key: OffsetKey, record: StoredRecord
    ) -> None:
        committed = None if record.value is None else read_offset(record.value)
        if committed is None:
            offsets.pop(key, None)
        else:
            offsets[key] = replace(committed, record_offset=record.offset)


Offsets = dict[TopicPartition, CommittedOffset]


class OffsetStore:
    """The offsets of all groups (Kafka: OffsetMetadataManager). Not thread-safe.

    Those committed in a transaction are pending until its marker. Everything that writes raises
    ``BrokerError`` 56 when the disk fails, and changes nothing then.
    """

    def __init__(self, log_of: Callable[[str], PartitionLog], clock: Clock) -> None:
        """``log_of`` gives the partition of the offsets topic that a group is in."""
        self._log_of = log_of
        self._clock = clock
        self._committed: dict[str, Offsets] = {}
        self._pending: dict[int, dict[str, Offsets]] = {}

    def load(
        self,
        committed: Mapping[OffsetKey, CommittedOffset],
        pending: Mapping[int, Mapping[OffsetKey, CommittedOffset]],
    ) -> None:
        """Take over what a partition of the offsets topic says."""
        for (group_id, where), one in committed.items():
            self._committed.setdefault(group_id, {})[where] = one
        for producer_id, offsets in pending.items():
            for (group_id, where), one in offsets.items():
                groups = self._pending.setdefault(producer_id, {})
                groups.setdefault(group_id, {})[where] = one

    def of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """What a group has committed."""
        return self._committed.get(group_id, {})

    def groups(self) -> list[str]:
        """The groups that have committed anything."""
        return list(self._committed)

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Where a group has committed something in a transaction that is not decided."""
        return {where for groups in self._pending.values() for where in groups.get(group_id, ())}

    def append(
        self, group_id: str, entries: list[Entry], transaction: OffsetsTransaction | None = None
    ) -> int:
        """Write records about a group; the offset of the first."""
        log = self._log_of(group_id)
        return append_entries(log, entries, self._clock.wall_ms(), transaction)

    def commit(
        self, group_id: str, offsets: Offsets, transaction: OffsetsTransaction | None = None
    ) -> None:
        """Write offsets. In a ``transaction`` they count once that is committed: 47, 48, too."""
        if not offsets:
            return
        entries = [(offset_key(group_id, w), offset_value(c)) for w, c in offsets.items()]
        first = self.append(group_id, list(entries), transaction)
        written = {
            where: replace(one, record_offset=first + number)
            for number, (where, one) in enumerate(offsets.items())
        }
        if transaction is None:
            self._committed.setdefault(group_id, {}).update(written)
        else:
            groups = self._pending.setdefault(transaction.producer_id, {})
            groups.setdefault(group_id, {}).update(written)

    def end_transaction(
        self, producer_id: int, groups: Callable[[str], bool], *, committed: bool
    ) -> list[str]:
        """The marker of a producer is written for some groups: they are returned."""
        pending = self._pending.get(producer_id, {})
        ended = [group_id for group_id in pending if groups(group_id)]
        for group_id in ended:
            offsets = pending.pop(group_id)
            present = self._committed.setdefault(group_id, {})
            for where, one in offsets.items() if committed else ():
                if where not in present or present[where].record_offset < one.record_offset:
                    present[where] = one
        if not pending:
            self._pending.pop(producer_id, None)
        return ended

    def forget(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Write that a group has committed nothing there."""
        known = [where for where in partitions if where in self.of(group_id)]
        if known:
            self.append(group_id, [(offset_key(group_id, where), None) for where in known])
            for where in known:
                del self._committed[group_id][where]

    def drop(self, group_id: str) -> None:
        """Forget a group, in memory: all its offsets are forgotten."""
        self._committed.pop(group_id, None)
