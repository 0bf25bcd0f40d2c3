"""What groups have committed, in memory and in the offsets topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kprod.broker.groups.group_records import CommittedOffset, OffsetKey, offset_key, offset_value
from kprod.broker.groups.offsets_topic import Entry, OffsetsTransaction, append_entries
from kprod.broker.log.partition_log import PartitionLog
from kprod.clock import Clock
from kprod.types import TopicPartition

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
