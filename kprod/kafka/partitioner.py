"""kafka-python's partitioners, and calls of partitioners for any version of kafka-python."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from kprod.cluster.snapshot import ClusterSnapshot, TopicInfo
from kprod.errors import PartitionError
from kprod.kafka.errors import also_theirs
from kprod.kafka.serializer import accepts
from kprod.lock import Lock
from kprod.types import BytesLike
from kprod_ext import murmur2 as _murmur2

Choose: TypeAlias = Callable[..., int]

FEW = 100
"""Topics that a sticky partitioner remembers before it checks whether they still exist."""


def murmur2(data: bytes) -> int:
    """Murmur2 of ``data`` as in Kafka's Java client, as an unsigned 32-bit number."""
    return _murmur2(data) & 0xFFFFFFFF


class Cluster:
    """The part of kafka-python's ``ClusterMetadata`` that its partitioners use. Immutable."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    def topics(self) -> set[str]:
        """The known topics."""
        return set(self._snapshot.topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """All partitions of a topic; None for an unknown topic."""
        known = self._snapshot.topic(topic)
        return None if known is None else set(range(len(known)))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions with a leader; None for an unknown topic."""
        known = self._snapshot.topic(topic)
        return None if known is None else set(known.available)


OnNewBatch: TypeAlias = Callable[[str, Cluster, int], object]


class Partitioner(ABC):
    """Chooses partitions, like ``kafka.partitioner.Partitioner``. Any thread may call it."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Cluster,
    ) -> int:
        """The number of one of the topic's partitions."""


also_theirs(Partitioner, "partitioner")


class DefaultPartitioner(Partitioner):
    """Chooses by the murmur2 hash of the key, or at random if there is no key.

    A producer that gets an instance uses kprod's default partitioner instead. kprod's partitioner
    treats keys in the same way, but keeps records without a key on one partition until a batch is
    full.
    """

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Cluster,
    ) -> int:
        """The number of a partition. Raises ValueError for an unknown topic."""
        every = sorted(cluster.partitions_for_topic(topic) or ())
        # A fake cluster in an application's tests may have an answer for every topic.
        if not every or not (type(cluster) is Cluster or topic in cluster.topics()):
            raise ValueError(f"Topic {topic} not found in ClusterMetadata")
        if serialized_key is not None:
            return every[(murmur2(serialized_key) & 0x7FFFFFFF) % len(every)]
        usable = sorted(cluster.available_partitions_for_topic(topic) or every)
        return self._without_key(topic, usable, cluster)

    def _without_key(self, topic: str, usable: list[int], cluster: Cluster) -> int:
        return random.choice(usable)


class StickyPartitioner(DefaultPartitioner):
    """Keeps records without a key on one partition until ``on_new_batch`` (KIP-480).

    Topics that no longer exist are forgotten when new ones are added. Thread-safe.
    """

    def __init__(self) -> None:
        self._sticky: dict[str, int] = {}
        self._most = FEW  # topics, before removed ones are dropped
        self._lock = Lock()  # guards both

    def _without_key(self, topic: str, usable: list[int], cluster: Cluster) -> int:
        with self._lock:
            if self._sticky.get(topic) not in usable:
                self._sticky[topic] = random.choice(usable)
                if len(self._sticky) > self._most:
                    self._forget_all_but(cluster.topics() | {topic})
            return self._sticky[topic]

    def _forget_all_but(self, known: set[str]) -> None:
        """Forget topics that are not ``known``. The caller holds the lock."""
        self._sticky = {name: number for name, number in self._sticky.items() if name in known}
        # Doubling the limit bounds the cost: each new topic pays for two checks.
        self._most = max(FEW, 2 * len(self._sticky))

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> None:
        """Switch to another partition, unless another thread has done so already."""
        with self._lock:
            if self._sticky.get(topic) != prev_partition:
                return
            usable = sorted(cluster.available_partitions_for_topic(topic) or ())
            others = [number for number in usable if number != prev_partition]
            if not usable:  # none has a leader: any of them may get one first
                others = sorted(cluster.partitions_for_topic(topic) or ())
            if others:
                self._sticky[topic] = random.choice(others)


_BUILT_IN = ("DefaultPartitioner", "StickyPartitioner")


def is_built_in(partitioner: Any) -> bool:
    """Whether this is a default partitioner of kafka-python or of this module."""
    kind = partitioner if isinstance(partitioner, type) else type(partitioner)
    return kind.__name__ in _BUILT_IN and (
        kind.__module__ == __name__ or kind.__module__.startswith("kafka.partitioner")
    )


def bound(partitioner: Any) -> Choose:
    """A function that calls the application's partitioner, for any version of kafka-python.

    The function has the arguments ``(topic, key, serialized key, value, serialized value,
    cluster)``. A partitioner of version 3 has a method ``partition`` with these six arguments, or
    with three: topic, serialized key, cluster. A partitioner of version 2 is a callable with three
    arguments: serialized key, all partitions, available partitions. Raises TypeError for anything
    else.
    """
    partition = getattr(partitioner, "partition", None)
    if callable(partition):
        if accepts(partition, 6):
            return partition  # type: ignore[no-any-return]
        return lambda topic, _k, key, _v, _value, cluster: partition(topic, key, cluster)
    if not callable(partitioner):
        raise TypeError(f"a partitioner is a callable or has partition(), not {partitioner!r}")

    def choose(topic: str, _k: Any, key: Any, _v: Any, _value: Any, cluster: Cluster) -> int:
        every = sorted(cluster.partitions_for_topic(topic) or ())
        available = sorted(cluster.available_partitions_for_topic(topic) or ())
        return int(partitioner(key, every, available))

    return choose


class StickyAdapter:
    """The application's sticky partitioner, for one record without a key (KIP-480).

    As in kafka-python, if the record would begin a batch, ``on_new_batch`` is called, and then the
    partitioner once more. Exceptions of both propagate.
    """

    def __init__(
        self, choose: Choose, on_new_batch: OnNewBatch, values: tuple[Any, Any], cluster: Cluster
    ) -> None:
        """``values`` are the record's value before and after serialization."""
        self._choose = choose
        self._on_new_batch = on_new_batch
        self._values = values
        self._cluster = cluster

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """The partition. Raises PartitionError for one that the topic does not have."""
        chosen: Any = self._choose(topic.name, None, None, *self._values, self._cluster)
        if not (isinstance(chosen, int) and 0 <= chosen < len(topic)):
            raise PartitionError(f"the partitioner has chosen {chosen!r} for topic {topic.name!r}")
        return int(chosen)

    def on_new_batch(self, topic: TopicInfo, previous: int) -> None:
        """Let the partitioner switch to another partition."""
        self._on_new_batch(topic.name, self._cluster, previous)

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Do nothing, because the application's partitioner keeps no account of bytes."""
