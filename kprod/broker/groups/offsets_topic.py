"""The committed offsets of groups, in memory and in ``__consumer_offsets`` (in Kafka's layout)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple

from kprod.broker.groups.group import ConsumerGroup, GroupMember, GroupState, JoinRequest
from kprod.broker.java_hash import java_hash
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.producer_state import VerificationGuard
from kprod.broker.protocol.messages import Message
from kprod.broker.protocol.record_schema import Field, RecordSchema, entity
from kprod.broker.records.batch_writer import read_marker, write_batch
from kprod.clock import Clock
from kprod.errors import ProtocolError
from kprod.records.record_batch import TRANSACTIONAL, BatchHeader, StoredRecord
from kprod.types import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
_MILLISECONDS: Final = 1000
_log = logging.getLogger(__name__)

_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 3
_GROUP_VALUE: Final = 3


_offset_key = entity("OffsetCommitKey", group="string", topic="string", partition="int32")
_member = entity(
    "MemberMetadata",
    member_id="string",
    group_instance_id=Field("string", nullable=True),
    client_id="string",
    client_host="string",
    rebalance_timeout="int32",
    session_timeout="int32",
    subscription="bytes",
    assignment="bytes",
)
_KEYS: Final = RecordSchema(
    {
        0: _offset_key,
        _OFFSET_KEY: _offset_key,
        _GROUP_KEY: entity("GroupMetadataKey", group="string"),
    }
)
_old_value = entity(
    "OffsetCommitValue", offset="int64", metadata="string", commit_timestamp="int64"
)
_OFFSETS: Final = RecordSchema(
    {
        # Version 1 ends with the time when the offset expires, which is left out of account.
        **dict.fromkeys((0, 1, 2), _old_value),
        _OFFSET_VALUE: entity(
            "OffsetCommitValue",
            offset="int64",
            leader_epoch="int32",
            metadata="string",
            commit_timestamp="int64",
        ),
    }
)
_GROUPS: Final = RecordSchema(
    {
        _GROUP_VALUE: entity(
            "GroupMetadataValue",
            protocol_type="string",
            generation="int32",
            protocol=Field("string", nullable=True),
            leader=Field("string", nullable=True),
            current_state_timestamp="int64",
            members=Field(_member, is_array=True),
        )
    }
)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset that a group has committed for one partition. ``committed_at`` is in milliseconds.

    ``record_offset`` says where in the offsets topic this is recorded. Of two commits for the same
    partition, the one with the larger ``record_offset`` is valid.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    record_offset: int = field(default=-1, compare=False)


Entry = tuple[bytes, bytes | None]
"""Key and value of one record; None as value deletes the group or offset of the key."""


def offset_entry(group_id: str, where: TopicPartition, committed: CommittedOffset | None) -> Entry:
    """Return the record of a committed offset. For None, return the record that deletes it."""
    names = {"group": group_id, "topic": where.topic, "partition": where.partition}
    key = _KEYS.encode(_OFFSET_KEY, names)
    if committed is None:
        return key, None
    fields = {
        "offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "commit_timestamp": committed.committed_at,
    }
    return key, _OFFSETS.encode(_OFFSET_VALUE, fields)


def forgotten_group(group_id: str) -> Entry:
    """Return the record that deletes a group."""
    return _KEYS.encode(_GROUP_KEY, {"group": group_id}), None


def group_entry(group: ConsumerGroup, now_ms: int) -> Entry:
    """Return the record that describes a group and its members."""
    in_use = group.state is not GroupState.EMPTY
    key, _ = forgotten_group(group.group_id)
    fields = {
        "protocol_type": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol if in_use else None,
        "leader": group.leader if in_use else None,
        "current_state_timestamp": now_ms,
        "members": [_member_fields(member, group.protocol) for member in group.members.values()],
    }
    return key, _GROUPS.encode(_GROUP_VALUE, fields)


def _member_fields(member: GroupMember, protocol: str | None) -> Message:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.joined.instance_id,
        "client_id": member.joined.client_id,
        "client_host": member.joined.client_host,
        "rebalance_timeout": int(member.joined.rebalance_timeout * _MILLISECONDS),
        "session_timeout": int(member.joined.session_timeout * _MILLISECONDS),
        "subscription": member.metadata(protocol),
        "assignment": member.assignment,
    }


def read_group(group_id: str, data: bytes, now: float) -> ConsumerGroup | None:
    """Parse the value of a group's record; None if the version of the value is unknown.

    The session time-out of each member starts at ``now``. Raises ``ProtocolError``.
    """
    found = _GROUPS.decode(data)
    if found is None:
        return None
    _, value = found
    group = ConsumerGroup(group_id)
    group.protocol_type = value.protocol_type or None
    group.generation, group.protocol = value.generation, value.protocol
    for each in value.members:
        joined = JoinRequest(
            member_id=each.member_id,
            instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            session_timeout=each.session_timeout / _MILLISECONDS,
            rebalance_timeout=each.rebalance_timeout / _MILLISECONDS,
            protocol_type=value.protocol_type,
            protocols=((value.protocol or "", each.subscription),),
        )
        member = GroupMember(each.member_id, joined, each.assignment)
        member.refresh(now)
        group.add(member)
    group.leader = value.leader
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    return group


class OffsetsTransaction(NamedTuple):
    """A transaction that commits offsets.

    ``guard`` is needed for the first batch of the transaction (see ``VerificationGuard``).
    """

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None


Offsets = dict[TopicPartition, CommittedOffset]


class OffsetStore:
    """The offsets of all groups (Kafka: OffsetMetadataManager). Not thread-safe.

    Offsets that are committed in a transaction are pending until the transaction's marker. Methods
    that write raise ``BrokerError`` 56 if the disk fails, and then leave the offsets unchanged.
    """

    def __init__(
        self, partitions: int, log_of: Callable[[int], PartitionLog], clock: Clock
    ) -> None:
        """``partitions`` is the number of partitions of the offsets topic.

        ``log_of`` returns the log of one of them, given its number.
        """
        self._partitions = partitions
        self._log_of = log_of
        self._clock = clock
        self._committed: dict[str, Offsets] = {}
        self._pending: dict[int, dict[str, Offsets]] = {}

    def partition_of(self, group_id: str) -> int:
        """Return the number of the partition of the offsets topic that stores a group.

        The number depends on Java's hash of the group id, as in Kafka.
        """
        return java_hash(group_id) % self._partitions

    def load(self, log: PartitionLog) -> dict[str, ConsumerGroup]:
        """Load the offsets in a partition of the offsets topic; return the groups in it, by id.

        A record that cannot be read is skipped and logged.
        """
        groups: dict[str, ConsumerGroup] = {}
        for batch in log.batches():
            marker = read_marker(batch) if batch.is_control else None
            if marker is not None:
                partition = log.where.partition
                self.end_transaction(marker.producer_id, partition, committed=marker.committed)
            for record in () if batch.is_control else batch.records():
                producer_id = batch.producer_id if batch.is_transactional else None
                try:
                    self._take(record, producer_id, groups)
                except ProtocolError as error:
                    _log.warning(
                        "record %d of %s is not readable: %s", record.offset, OFFSETS_TOPIC, error
                    )
        self._committed = {name: offsets for name, offsets in self._committed.items() if offsets}
        for group_id in (*self._committed, *chain(*self._pending.values())):
            # A client that is not a member has committed: no record describes its group.
            if self.partition_of(group_id) == log.where.partition:
                groups.setdefault(group_id, ConsumerGroup(group_id))
        return groups

    def _take(
        self, record: StoredRecord, producer_id: int | None, groups: dict[str, ConsumerGroup]
    ) -> None:
        found = _KEYS.decode(record.key or b"")
        if found is None:
            return
        version, key = found
        if version == _GROUP_KEY:
            groups.pop(key.group, None)
            if record.value is not None:
                group = read_group(key.group, record.value, self._clock.monotonic())
                groups.update({} if group is None else {key.group: group})
            return
        value = None if record.value is None else _OFFSETS.decode(record.value)
        offsets = self._offsets(key.group, producer_id)
        where = TopicPartition(key.topic, key.partition)
        if value is None and producer_id is None:
            self._remove(key.group, where)
        elif value is None:
            offsets.pop(where, None)
        else:
            _, one = value
            epoch = getattr(one, "leader_epoch", -1)
            offsets[where] = CommittedOffset(
                one.offset, epoch, one.metadata, one.commit_timestamp, record.offset
            )

    def _offsets(self, group_id: str, producer_id: int | None) -> Offsets:
        """Return a group's valid offsets, or those that are pending in a producer's transaction."""
        if producer_id is None:
            return self._committed.setdefault(group_id, {})
        groups = self._pending.setdefault(producer_id, {})
        return groups.setdefault(group_id, {})

    def of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the valid offsets of a group."""
        return self._committed.get(group_id, {})

    def groups(self) -> list[str]:
        """Return the ids of the groups with committed offsets."""
        return list(self._committed)

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions for which the group has an offset in an open transaction."""
        return {where for groups in self._pending.values() for where in groups.get(group_id, ())}

    def partitions_of(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions for which the group has an offset, valid or pending."""
        return {*self.of(group_id), *self.unstable(group_id)}

    def append(
        self,
        group_id: str,
        entries: Sequence[Entry],
        transaction: OffsetsTransaction | None = None,
    ) -> int:
        """Write records about a group as one batch; return the offset of the first record.

        Raises ``BrokerError`` 56 if the disk fails. For a ``transaction`` that has ended, also
        raises 47 or 48.
        """
        log, now_ms = self._log_of(self.partition_of(group_id)), self._clock.wall_ms()
        if transaction is None:
            batch = write_batch(entries, now_ms)
            return log.append(BatchHeader.parse(batch), batch).base_offset
        producer = (transaction.producer_id, transaction.producer_epoch)
        batch = write_batch(entries, now_ms, TRANSACTIONAL, producer)
        return log.append(BatchHeader.parse(batch), batch, transaction.guard).base_offset

    def commit(
        self, group_id: str, offsets: Offsets, transaction: OffsetsTransaction | None = None
    ) -> None:
        """Write offsets. In a ``transaction``, they become valid when it is committed."""
        if not offsets:
            return
        entries = [offset_entry(group_id, where, one) for where, one in offsets.items()]
        first = self.append(group_id, entries, transaction)
        present = self._offsets(group_id, transaction and transaction.producer_id)
        for number, (where, one) in enumerate(offsets.items()):
            present[where] = replace(one, record_offset=first + number)

    def end_transaction(self, producer_id: int, partition: int, *, committed: bool) -> list[str]:
        """Apply a producer's marker in a partition of the offsets topic.

        Returns the groups that have offsets in the transaction.
        """
        pending = self._pending.get(producer_id, {})
        ended = [group_id for group_id in pending if self.partition_of(group_id) == partition]
        for group_id in ended:
            offsets = pending.pop(group_id)
            present = self._offsets(group_id, None)
            for where, one in offsets.items() if committed else ():
                if where not in present or present[where].record_offset < one.record_offset:
                    present[where] = one
        if not pending:
            self._pending.pop(producer_id, None)
        return ended

    def forget(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's offsets for these partitions, also those that are pending."""
        present = self.partitions_of(group_id)
        known = [where for where in partitions if where in present]
        if known:
            self.append(group_id, [offset_entry(group_id, where, None) for where in known])
            for where in known:
                self._remove(group_id, where)

    def _remove(self, group_id: str, where: TopicPartition) -> None:
        for groups in (self._committed, *self._pending.values()):
            groups.get(group_id, {}).pop(where, None)

    def drop(self, group_id: str) -> None:
        """Forget a group in memory. Its offsets must have been deleted before."""
        self._committed.pop(group_id, None)
