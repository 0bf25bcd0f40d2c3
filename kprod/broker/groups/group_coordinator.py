"""Coordinates consumer groups: guards their state, runs timers, writes the offsets topic."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kio.schema.errors import ErrorCode

from kprod.broker.groups import membership
from kprod.broker.groups.group import (
    ConsumerGroup,
    GroupConfig,
    GroupState,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    SyncAnswer,
    SyncReply,
    SyncRequest,
)
from kprod.broker.groups.offsets_topic import (
    CommittedOffset,
    OffsetStore,
    OffsetsTransaction,
    forgotten_group,
    group_entry,
)
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.purgatory import Appointment, Timer
from kprod.broker.records.batch_writer import TransactionMarker
from kprod.clock import Clock
from kprod.errors import BrokerError
from kprod.types import TopicPartition

_log = logging.getLogger(__name__)


class GroupCoordinator:
    """All groups of one cluster (Kafka: GroupCoordinator). Thread-safe.

    One lock guards all groups. The lock is held during writes to the offsets topic, so that its
    records are in the order of the changes: a restart reads the groups from these records. Answers
    are sent after the lock is released.
    """

    def __init__(
        self,
        config: GroupConfig,
        offsets_log: Callable[[int], PartitionLog],
        timer: Timer,
        submit: Callable[[Callable[[], None]], None],
        clock: Clock,
    ) -> None:
        """``offsets_log`` returns the log of a partition of the offsets topic, given its number.

        The function creates the topic if necessary, and raises ``BrokerError`` 56 if the disk
        fails.
        """
        self._config = config
        self._offsets_log = offsets_log
        self._timer = timer
        self._submit = submit
        self._clock = clock
        self._lock = threading.Lock()  # guards the rest
        self._groups: dict[str, ConsumerGroup] = {}
        self._offsets = OffsetStore(config.offsets_topic_partitions, offsets_log, clock)
        self._empty_since: dict[str, int] = {}
        self._appointments: dict[str, Appointment] = {}
        self._closed = False

    def partition_of(self, group_id: str) -> int:
        """Return the number of the partition of the offsets topic that stores a group."""
        return self._offsets.partition_of(group_id)

    def offsets_log_of(self, group_id: str) -> PartitionLog:
        """Return the log that stores a group. Raises ``BrokerError`` 56 if the disk fails."""
        return self._offsets_log(self.partition_of(group_id))

    def load(self, log: PartitionLog) -> None:
        """When the broker starts, load groups and offsets from a partition of the offsets topic."""
        now_ms = self._clock.wall_ms()
        with self._lock:
            found = self._offsets.load(log)
            self._groups.update(found)
            self._empty_since.update(dict.fromkeys(self._offsets.groups(), now_ms))
            for group in found.values():
                self._schedule(group)

    # Members -------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest, reply: JoinReply) -> None:
        """Handle JoinGroup. ``reply`` is called now or later, by any thread."""
        error = self._refusal(group_id, request)
        if error is not None:
            reply(JoinAnswer(error_code=error, member_id=request.member_id))
            return
        prefix = request.instance_id or request.client_id
        with self._changing(group_id, create=True) as group:
            if self._full(group, request):
                error = ErrorCode.group_max_size_reached
                group.answer(reply, JoinAnswer(error_code=error, member_id=request.member_id))
                return
            membership.join(
                group,
                request,
                reply,
                new_id=f"{prefix}-{uuid.uuid4()}",
                now=self._clock.monotonic(),
                initial_delay=self._config.initial_rebalance_delay_ms / 1000,
            )

    def _refusal(self, group_id: str, request: JoinRequest) -> ErrorCode | None:
        if not group_id:
            return ErrorCode.invalid_group_id
        lowest = self._config.min_session_timeout_ms / 1000
        if not lowest <= request.session_timeout <= self._config.max_session_timeout_ms / 1000:
            return ErrorCode.invalid_session_timeout
        return self._unknown(group_id) if request.member_id else None

    def _unknown(self, group_id: str) -> ErrorCode | None:
        """Return the error for a group that does not exist; None if the group exists."""
        if group_id in self._groups:
            return None
        return ErrorCode.unknown_member_id if group_id else ErrorCode.invalid_group_id

    def _full(self, group: ConsumerGroup, request: JoinRequest) -> bool:
        return (
            request.member_id not in group.members
            and request.instance_id not in group.static_members
            and len(group.members) >= self._config.max_size
        )

    def sync(self, group_id: str, request: SyncRequest, reply: SyncReply) -> None:
        """Handle SyncGroup. ``reply`` is called now or later, by any thread."""
        error = self._unknown(group_id)
        if error is not None:
            reply(SyncAnswer(error_code=error))
            return
        with self._changing(group_id) as group:
            membership.sync(group, request, reply, now=self._clock.monotonic())

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Handle Heartbeat; return its error code."""
        error = self._unknown(group_id)
        if error is not None:
            return error
        with self._changing(group_id) as group:
            now = self._clock.monotonic()
            return membership.heartbeat(group, member_id, instance_id, generation, now)

    def leave(self, group_id: str, members: list[tuple[str, str | None]]) -> list[ErrorCode]:
        """Handle LeaveGroup; return an error code for each member.

        ``members`` are pairs of member id and instance id. Raises ``BrokerError`` 24 if the group
        id is empty.
        """
        if not group_id:
            raise BrokerError(ErrorCode.invalid_group_id)
        if group_id not in self._groups:
            return [ErrorCode.unknown_member_id] * len(members)
        with self._changing(group_id) as group:
            now = self._clock.monotonic()
            return [membership.leave(group, one, instance, now) for one, instance in members]

    @contextmanager
    def _changing(self, group_id: str, *, create: bool = False) -> Iterator[ConsumerGroup]:
        """Yield the group under the lock.

        After the ``with`` block, the group is written if it has changed, the lock is released, and
        the answers are sent.
        """
        with self._lock:
            group = self._groups.get(group_id) or ConsumerGroup(group_id)
            if create:
                self._groups[group_id] = group
            yield group
            self._write_if_changed(group)
            self._schedule(group)
            answers, group.answers = group.answers, []
        for give in answers:
            give()

    def _write_if_changed(self, group: ConsumerGroup) -> None:
        if not group.changed:
            return
        group.changed = False
        now_ms = self._clock.wall_ms()
        self._empty_since[group.group_id] = now_ms
        if group.state in (GroupState.STABLE, GroupState.EMPTY):
            try:
                self._offsets.append(group.group_id, [group_entry(group, now_ms)])
            except BrokerError as error:
                # Members go on; after a restart they would have to join again, nothing worse.
                _log.warning("group %r could not be written: %s", group.group_id, error)

    # Time ----------------------------------------------------------------------------------

    def _schedule(self, group: ConsumerGroup) -> None:
        deadline = group.deadline()
        present = self._appointments.get(group.group_id)
        if deadline is None or self._closed or (present and present.when <= deadline):
            return
        if present is not None:
            present.cancel()
        self._appointments[group.group_id] = self._timer.at(
            deadline, lambda: self._submit(lambda: self._advance(group.group_id))
        )

    def _advance(self, group_id: str) -> None:
        with self._lock:
            self._appointments.pop(group_id, None)
        if group_id in self._groups and not self._closed:
            with self._changing(group_id) as group:
                group.advance(self._clock.monotonic())

    # Offsets -------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, tuple[int, int, str]],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = -1,
        transaction: OffsetsTransaction | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Handle OffsetCommit, or TxnOffsetCommit if a ``transaction`` is given.

        ``offsets`` has the offset, leader epoch and metadata for each partition. Offsets in a
        transaction are pending until the transaction ends. Returns an error code for each
        partition.
        """
        limit = self._config.offset_metadata_max_bytes
        now_ms = self._clock.wall_ms()
        committed = {
            where: CommittedOffset(offset, epoch, metadata, now_ms)
            for where, (offset, epoch, metadata) in offsets.items()
            if len(metadata) <= limit
        }
        member = (member_id, instance_id, generation)
        error = self._commit(group_id, committed, member, transaction)
        errors = dict.fromkeys(offsets, ErrorCode.offset_metadata_too_large)
        return {**errors, **dict.fromkeys(committed, error)}

    def _commit(
        self,
        group_id: str,
        committed: dict[TopicPartition, CommittedOffset],
        member: tuple[str, str | None, int],
        transaction: OffsetsTransaction | None,
    ) -> ErrorCode:
        if group_id not in self._groups and member[2] >= 0:
            return ErrorCode.illegal_generation
        with self._changing(group_id, create=True) as group:
            now = self._clock.monotonic()
            refused = membership.check_commit(
                group, *member, now, transactional=transaction is not None
            )
            if refused is not None:
                return refused
            try:
                self._offsets.commit(group_id, committed, transaction)
            except BrokerError as error:
                return ErrorCode(error.code)
            self._empty_since.setdefault(group_id, self._clock.wall_ms())
        return ErrorCode.none

    def end_transaction(
        self, partition: int, marker: TransactionMarker, transaction_version: int
    ) -> None:
        """Write a transaction's marker to a partition of the offsets topic.

        The transaction's offsets become valid if it is committed, and are dropped if it is aborted.
        Raises ``BrokerError`` 47 (old producer epoch), 52 (old coordinator) or 56 (disk failure).
        """
        log = self._offsets_log(partition)
        with self._lock:
            now_ms = self._clock.wall_ms()
            log.end_transaction(marker, now_ms, transaction_version=transaction_version)
            for group_id in self._offsets.end_transaction(
                marker.producer_id, partition, committed=marker.committed
            ):
                self._empty_since.setdefault(group_id, now_ms)

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group."""
        with self._lock:
            return dict(self._offsets.of(group_id))

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions for which the group has an offset in an open transaction."""
        with self._lock:
            return self._offsets.unstable(group_id)

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition]) -> None:
        """Handle OffsetDelete.

        Raises ``BrokerError`` 56 (disk failure), 68 (the group has members) or 69 (unknown group).
        """
        with self._lock:
            self._check_without_members(group_id)
            self._offsets.forget(group_id, partitions)

    def _check_without_members(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.group_id_not_found)
        if group.members or group.state is not GroupState.EMPTY:
            raise BrokerError(ErrorCode.non_empty_group)

    def expire_offsets(self) -> None:
        """Forget the old offsets of groups that have long been empty.

        Groups that then have no offset are also forgotten.
        """
        oldest = self._clock.wall_ms() - self._config.offsets_retention_ms
        with self._lock:
            for group_id, group in list(self._groups.items()):
                if group.state is not GroupState.EMPTY:
                    continue
                if self._offsets.unstable(group_id):
                    continue
                if self._empty_since.get(group_id, oldest) <= oldest:
                    offsets = self._offsets.of(group_id)
                    self._offsets.forget(
                        group_id, [w for w, c in offsets.items() if c.committed_at <= oldest]
                    )
                    if not self._offsets.of(group_id):
                        self._drop(group_id)

    def _drop(self, group_id: str) -> None:
        self._offsets.append(group_id, [forgotten_group(group_id)])
        self._groups.pop(group_id, None)
        self._offsets.drop(group_id)
        self._empty_since.pop(group_id, None)

    def forget_topic(self, topic: str) -> None:
        """Delete all groups' offsets for a topic, because the topic was deleted."""
        with self._lock:
            for group_id in self._groups:
                offsets = self._offsets.partitions_of(group_id)
                self._offsets.forget(group_id, [w for w in offsets if w.topic == topic])

    # Administration ------------------------------------------------------------------------

    def groups(self) -> list[ConsumerGroup]:
        """Return all groups, sorted by id. They may change while the caller reads them."""
        with self._lock:
            return [group for _, group in sorted(self._groups.items())]

    @contextmanager
    def group(self, group_id: str) -> Iterator[ConsumerGroup | None]:
        """Yield a group (None if it does not exist) for reading, under the lock."""
        with self._lock:
            yield self._groups.get(group_id)

    def delete(self, group_id: str) -> None:
        """Handle DeleteGroups for one group: delete the group and its offsets.

        Raises ``BrokerError`` 56 (disk failure), 68 (the group has members) or 69 (unknown group).
        """
        with self._lock:
            self._check_without_members(group_id)
            self._offsets.forget(group_id, self._offsets.partitions_of(group_id))
            self._drop(group_id)

    def resign(self, error: ErrorCode) -> None:
        """Answer all waiting requests with ``error``: this node is no longer coordinator."""
        answers: list[Callable[[], None]] = []
        with self._lock:
            for group in self._groups.values():
                group.resign(error, self._clock.monotonic())
                answers += group.answers
                group.answers = []
        for give in answers:
            give()

    def close(self) -> None:
        """Answer all waiting requests, and ignore time-outs from now on."""
        self._closed = True
        self.resign(ErrorCode.coordinator_not_available)
