"""An immutable snapshot of the cluster: its brokers, topics, and the leader of each partition.

Readers get the snapshot from one attribute (``Metadata.snapshot``) without a lock; writers publish
a new one. A new snapshot follows the rules of Kafka's ``MetadataSnapshot`` and ``Metadata``: the
leader epoch of a partition never goes back, unless the topic has another id (KIP-320, KIP-516).
Topic ids are 16 bytes, as on the wire.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, overload

from kprod.errors import REFRESHES_METADATA, PartitionError
from kprod.types import Broker, TopicPartition
from kprod.wire.control import NodeLists, PartitionReply, TopicReply

NO_LEADER = -1
NO_EPOCH = -1


class PartitionInfo(NamedTuple):
    """The leader of a partition: ``leader_id`` -1 for none, ``leader_epoch`` -1 if unknown."""

    partition: int
    leader_id: int = NO_LEADER
    leader_epoch: int = NO_EPOCH


class Partitions(Sequence[PartitionInfo]):
    """The partitions of a topic by number, 16 bytes each plus four per replica. Immutable.

    A cluster may have 200,000 of them, and as objects each would take 150 bytes or more. Equality
    compares leaders and epochs, not replicas, which are only for display and plug-ins.
    """

    __slots__ = ("_epochs", "_in_sync", "_leaders", "_replicas")

    def __init__(
        self,
        leaders: array[int],
        epochs: array[int],
        replicas: NodeLists | None = None,
        in_sync: NodeLists | None = None,
    ) -> None:
        """Leader, epoch and replicas of each partition; the arguments must not be changed later.

        ``replicas`` and ``in_sync`` are None if they are unknown.
        """
        self._leaders = leaders
        self._epochs = epochs
        self._replicas = replicas
        self._in_sync = in_sync

    @classmethod
    def of(cls, infos: Iterable[PartitionInfo]) -> Partitions:
        """The partitions of ``infos``, in order."""
        leaders, epochs = array("i"), array("i")
        for _, leader_id, leader_epoch in infos:
            leaders.append(leader_id)
            epochs.append(leader_epoch)
        return cls(leaders, epochs)

    @classmethod
    def without_leaders(cls, count: int) -> Partitions:
        """``count`` partitions without any details."""
        return cls(array("i", [NO_LEADER]) * count, array("i", [NO_EPOCH]) * count)

    def __len__(self) -> int:
        return len(self._leaders)

    def __iter__(self) -> Iterator[PartitionInfo]:
        return map(PartitionInfo, range(len(self)), self._leaders, self._epochs)

    @overload
    def __getitem__(self, index: int) -> PartitionInfo: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PartitionInfo, ...]: ...
    def __getitem__(self, index: int | slice) -> PartitionInfo | tuple[PartitionInfo, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        number = index if index >= 0 else index + len(self)
        return PartitionInfo(number, self._leaders[index], self._epochs[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partitions):
            return NotImplemented
        return self._leaders == other._leaders and self._epochs == other._epochs

    def __hash__(self) -> int:
        return hash((self._leaders.tobytes(), self._epochs.tobytes()))

    def __repr__(self) -> str:
        return f"Partitions.of({list(self)!r})"

    def replicas(self, number: int) -> tuple[int, ...]:
        """The nodes with a replica, the preferred leader first; () if unknown."""
        return () if self._replicas is None else self._replicas[number]

    def in_sync(self, number: int) -> tuple[int, ...]:
        """The nodes with an in-sync replica; () if unknown."""
        return () if self._in_sync is None else self._in_sync[number]

    def led(self) -> Sequence[int]:
        """The numbers of the partitions with a leader, in order."""
        if NO_LEADER not in self._leaders:
            return range(len(self))
        return tuple(n for n, leader_id in enumerate(self._leaders) if leader_id != NO_LEADER)

    def newest(self, known: Partitions) -> Partitions:
        """These partitions. Those with a higher leader epoch in ``known`` are taken from there."""
        pairs = enumerate(zip(known._epochs, self._epochs, strict=False))
        back = [number for number, (before, now) in pairs if before > now != NO_EPOCH]
        return self.changed(known[number] for number in back) if back else self

    def changed(self, infos: Iterable[PartitionInfo]) -> Partitions:
        """A copy with ``infos`` in place of the partitions with the same numbers."""
        leaders, epochs = self._leaders[:], self._epochs[:]
        for number, leader_id, leader_epoch in infos:
            leaders[number], epochs[number] = leader_id, leader_epoch
        return Partitions(leaders, epochs, self._replicas, self._in_sync)


class LeaderHint(NamedTuple):
    """The leader named in a produce response (KIP-951), and its address if it is included.

    ``topic_id`` is that of the request; None if it was unknown.
    """

    leader_id: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    broker: Broker | None = None
    topic_id: bytes | None = None


class Leadership(NamedTuple):
    """The leader of one partition, from one election to the next.

    ``topic_id`` distinguishes a topic from a deleted one of the same name and perhaps the same
    epochs.
    """

    leader_id: int
    leader_epoch: int
    topic_id: bytes | None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The partitions of a topic, indexed by number, and the numbers of those with a leader.

    ``is_led``: whether all partitions have a leader.
    """

    name: str
    topic_id: bytes | None
    partitions: Partitions
    available: Sequence[int] = field(init=False)
    is_led: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        available = self.partitions.led()
        object.__setattr__(self, "available", available)
        object.__setattr__(self, "is_led", len(available) == len(self.partitions))

    def __len__(self) -> int:
        return len(self.partitions)

    def can_take(self, numbers: Collection[int]) -> bool:
        """Whether all these partitions exist and have a leader.

        If no partition of the topic has a leader, it is enough that they exist.
        """
        partitions = self.partitions
        if max(numbers) >= len(partitions):
            return False
        if self.is_led or not self.available:
            return True
        return all(partitions[number].leader_id != NO_LEADER for number in numbers)

    def newer_than(self, known: TopicInfo | None) -> TopicInfo:
        """This topic. Partitions with a higher leader epoch in ``known`` are taken from there.

        If ``known`` has another topic id, none are.
        """
        if known is None or known.topic_id != self.topic_id:
            return self
        kept = self.partitions.newest(known.partitions)
        return self if kept is self.partitions else TopicInfo(self.name, self.topic_id, kept)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Brokers by node id and topics by name.

    Never changes; every method is safe from any thread.
    """

    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))
    cluster_id: str | None = None

    def topic(self, name: str) -> TopicInfo | None:
        """The topic, or None if it is unknown."""
        return self.topics.get(name)

    def leader(self, tp: TopicPartition) -> PartitionInfo | None:
        """The leader of a partition if its broker is known, otherwise None."""
        info = self._partition(tp)
        return info if info is not None and info.leader_id in self.brokers else None

    def leadership(self, tp: TopicPartition) -> Leadership | None:
        """The leader of a partition and its epoch; None if no known broker leads it."""
        info = self.leader(tp)
        if info is None:
            return None
        return Leadership(info.leader_id, info.leader_epoch, self.topic_id(tp.topic))

    def topic_id(self, name: str) -> bytes | None:
        """The topic's id; None if the topic is unknown or the cluster has no topic ids."""
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None else None

    def with_topics(
        self,
        answered: Iterable[TopicInfo],
        brokers: Mapping[int, Broker],
        cluster_id: str | None = None,
    ) -> ClusterSnapshot:
        """A snapshot in which ``answered`` replaces the entries of these topics.

        If another cluster has answered, known leaders and epochs are discarded.
        """
        known = self.without_brokers() if self.is_of_another(cluster_id) else self
        topics = dict(known.topics)
        for topic in answered:
            topics[topic.name] = topic.newer_than(topics.get(topic.name))
        return ClusterSnapshot(
            MappingProxyType(dict(brokers)),
            MappingProxyType(topics),
            cluster_id or self.cluster_id,
        )

    def is_of_another(self, cluster_id: str | None) -> bool:
        """True if both clusters' ids are known and differ."""
        return None not in (cluster_id, self.cluster_id) and cluster_id != self.cluster_id

    def without_topics(self, names: Iterable[str]) -> ClusterSnapshot:
        """A snapshot without the topics ``names``."""
        gone = set(names)
        kept = {name: topic for name, topic in self.topics.items() if name not in gone}
        return ClusterSnapshot(self.brokers, MappingProxyType(kept), self.cluster_id)

    def without_brokers(self) -> ClusterSnapshot:
        """A snapshot with the topics and their partition counts, without brokers and leaders."""
        topics = {
            name: TopicInfo(name, info.topic_id, Partitions.without_leaders(len(info)))
            for name, info in self.topics.items()
        }
        return ClusterSnapshot(topics=MappingProxyType(topics), cluster_id=self.cluster_id)

    def with_leaders(self, hints: Mapping[TopicPartition, LeaderHint]) -> ClusterSnapshot:
        """A snapshot with the new leader hints of a produce response (KIP-951).

        All hints are applied in one step, so that each topic is copied only once: thousands of
        leaders may move together. Hints for a deleted topic are ignored: their epochs could be
        higher than those of a new topic of the same name.
        """
        brokers = dict(self.brokers)
        moved: dict[str, list[PartitionInfo]] = {}
        for tp, (leader_id, leader_epoch, broker, topic_id) in hints.items():
            known = self._partition(tp)
            if known is None or leader_epoch <= known.leader_epoch:
                continue
            if topic_id is not None and topic_id != self.topic_id(tp.topic):
                continue
            if broker is not None:
                brokers[leader_id] = broker
            if leader_id in brokers:
                led = PartitionInfo(tp.partition, leader_id, leader_epoch)
                moved.setdefault(tp.topic, []).append(led)
        if not moved:
            return self
        topics = dict(self.topics)
        for name, infos in moved.items():
            known_topic = topics[name]
            partitions = known_topic.partitions.changed(infos)
            topics[name] = TopicInfo(name, known_topic.topic_id, partitions)
        same = brokers == self.brokers
        return ClusterSnapshot(
            self.brokers if same else MappingProxyType(brokers),
            MappingProxyType(topics),
            self.cluster_id,
        )

    def _partition(self, tp: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def __iter__(self) -> Iterator[TopicInfo]:
        return iter(self.topics.values())


MOST_HOLES = 1000


def no_partitions(topic: TopicInfo) -> PartitionError:
    """The error for any record of a topic that has no partitions according to a broker."""
    return PartitionError(f"topic {topic.name!r} has no partitions")


def no_such_partition(topic: TopicInfo, partition: int) -> PartitionError:
    """The error for a partition that a topic does not have, with the valid range."""
    count = len(topic)
    if count == 0:
        return no_partitions(topic)
    has = "1 partition, number 0" if count == 1 else f"{count} partitions (0 to {count - 1})"
    return PartitionError(f"topic {topic.name!r} has no partition {partition}: it has {has}")


def awaits_leader(reply: PartitionReply) -> bool:
    """True for a partition that has no leader and is expected to get one."""
    return reply.leader_id < 0 and reply.error_code in REFRESHES_METADATA


def topic_info(reply: TopicReply) -> TopicInfo:
    """A topic from a reply. Its partitions come in any order; missing ones have no leader.

    Invalid numbers, negative or far beyond the count, are ignored, so that memory is proportional
    to the size of the reply.
    """
    replies = reply.partitions
    most = MOST_HOLES + len(replies)
    highest = max((p.partition for p in replies if p.partition <= most), default=-1)
    leaders, epochs = (
        array("i", [NO_LEADER]) * (highest + 1),
        array("i", [NO_EPOCH]) * (highest + 1),
    )
    places = array("i", [-1]) * (highest + 1)
    for place, part in enumerate(replies):
        if 0 <= part.partition <= highest:
            leaders[part.partition], epochs[part.partition] = part.leader_id, part.leader_epoch
            places[part.partition] = place
    replicas, in_sync = replies.replicas, replies.in_sync
    if len(places) != len(replies) or any(at != place for at, place in enumerate(places)):
        replicas, in_sync = _at(replicas, places), _at(in_sync, places)
    return TopicInfo(
        reply.name or "", reply.topic_id, Partitions(leaders, epochs, replicas, in_sync)
    )


def _at(lists: NodeLists, places: Iterable[int]) -> NodeLists:
    """The lists at these indexes; an empty list for an index below 0."""
    return NodeLists(() if place < 0 else lists[place] for place in places)
