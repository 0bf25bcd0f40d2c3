"""Partitioners: Kafka's default one, round robin, and the key hashes of Kafka's clients."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Container, Iterator
from itertools import count
from operator import attrgetter
from typing import NamedTuple, Protocol

from kprod.cluster.snapshot import TopicInfo, no_partitions
from kprod.intake.queue_loads import QueueLoads
from kprod.lock import Lock
from kprod.types import BytesLike
from kprod_ext import StickyPartition, fnv1a, partition_for_key


class KeyHash(NamedTuple):
    """Hashes keys: ``partition(key, partitions)`` returns the partition of a key.

    All partitions are used, with or without a leader. If ``empty_is_a_key`` is False, the key
    ``b""`` is treated as no key.
    """

    partition: Callable[[BytesLike, int], int]
    empty_is_a_key: bool = True


def _by_crc32(key: BytesLike, partitions: int) -> int:
    return zlib.crc32(key) % partitions


def _by_fnv1a(key: BytesLike, partitions: int) -> int:
    return magnitude(fnv1a(key)) % partitions


def magnitude(state: int) -> int:
    """The absolute value of the hash, as Sarama reads its 32 bits as a signed number.

    Sarama takes the signed remainder, and then the absolute value of that. The remainder of the
    absolute value is the same.
    """
    return state if state < 1 << 31 else (1 << 32) - state


MURMUR2 = KeyHash(partition_for_key)
"""The hash of kafka-python, franz-go, and Java (``BuiltInPartitioner.partitionForKey``)."""

CRC32 = KeyHash(_by_crc32, empty_is_a_key=False)
"""The hash of librdkafka's default, ``consistent_random``."""

FNV1A = KeyHash(_by_fnv1a)
"""The hash of Sarama's default, ``NewHashPartitioner``, and of librdkafka's ``fnv1a_random``."""


class Partitioner(Protocol):
    """Chooses partitions, and is notified of appended records. Called by every thread that sends.

    A partitioner of the application may also have ``on_new_batch(topic, previous)``, like Kafka's
    ``Partitioner.onNewBatch`` (KIP-480). It is called if a record for ``previous``, the partition
    that ``choose`` has just returned, would begin a batch. Then ``choose`` is called once more, and
    the record goes to the partition that it returns.
    """

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """Return the number of one of the topic's partitions."""
        ...

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Called after a record of ``nbytes`` was appended; ``batch_ready``: a batch is full."""
        ...


AHEAD = 8
"""Sticky partitions to draw at the same time. When the last one is used, the loads are seven shares
old."""


class DefaultPartitioner:
    """Kafka's default: by the hash of the key, or one partition at a time without a key.

    Keys are hashed over all partitions. Records without a key stay on one partition, the sticky
    one, until it has received ``batch_size`` bytes and its batch is full, but at most for twice
    ``batch_size``. The next one is drawn from the partitions that have a leader: by the lengths of
    their queues if ``loads`` knows them, otherwise uniformly (``BuiltInPartitioner``, KIP-794).
    Records with a key that map to the sticky partition fill the same batch, so they count as well
    if they are reported. Without a ``key_hash`` every record is treated as one without a key.
    Thread-safe.

    Several partitions are drawn at the same time, so that the compiled ``send`` can switch to the
    next one by itself. Only one is drawn if ``loads`` may have to avoid a broker.
    """

    def __init__(
        self,
        batch_size: int,
        rng: random.Random | None = None,
        *,
        key_hash: KeyHash | None = MURMUR2,
        loads: QueueLoads | None = None,
    ) -> None:
        self.hashes_by_murmur2 = key_hash is MURMUR2
        self._batch_size = batch_size
        self._partition_of = key_hash.partition if key_hash is not None else None
        self._empty_is_a_key = key_hash is not None and key_hash.empty_is_a_key
        self._loads = loads
        self._ahead = 1 if loads is not None and loads.avoids_brokers else AHEAD
        self._lock = Lock()  # guards what follows; choose() reads _sticky without it
        self._rng = rng if rng is not None else random.Random()
        self._sticky: dict[str, StickyPartition] = {}

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """The partition of the key; without a key, the topic's sticky partition."""
        count = len(topic.partitions)
        if count == 0:
            raise no_partitions(topic)
        if key is not None and self._partition_of is not None and (key or self._empty_is_a_key):
            return self._partition_of(key, count)
        sticky = self.sticky(topic.name)
        if sticky is None or not _usable(topic, sticky):
            with self._lock:
                sticky = self._stick(topic)
        return sticky.partition

    def sticky(self, topic: str) -> StickyPartition | None:
        """The current partition for the topic's records without a key; None before the first."""
        sticky = self._sticky.get(topic)
        return None if sticky is None else sticky.current()

    def forget(self, topics: Container[str]) -> None:
        """Forget these topics. If one is used again, it gets a new sticky partition."""
        with self._lock:
            sticky = self._sticky.items()
            self._sticky = {topic: each for topic, each in sticky if topic not in topics}

    def upcoming(self, topic: TopicInfo, count: int) -> list[StickyPartition]:
        """The topic's sticky partition, and at least ``count`` further ones to use after it.

        The caller calls ``goes_on`` with the one that it has reached. The others are dropped.
        """
        with self._lock:
            found = self._stick(topic, count + 1).chain()
            if len(found) <= count:
                found += self._drawn(topic, count).chain()
            return found

    def goes_on(self, topic: TopicInfo, sticky: StickyPartition) -> None:
        """Make ``sticky``, which was drawn in advance, the topic's sticky partition."""
        with self._lock:
            self._sticky[topic.name] = sticky

    def _stick(self, topic: TopicInfo, ahead: int = 1) -> StickyPartition:
        sticky = self._sticky.get(topic.name)
        sticky = None if sticky is None else sticky.current()
        # Looked at again: of several threads that found a partition without a leader only the
        # first draws, the others follow it and so fill the same batch.
        if sticky is None or not _usable(topic, sticky):
            sticky = self._drawn(topic, max(ahead, self._ahead))
        self._sticky[topic.name] = sticky
        return sticky

    def _drawn(self, topic: TopicInfo, count: int) -> StickyPartition:
        """Draw ``count`` partitions; return the first, to which the others are linked."""
        drawn = self._loads.draw(topic, self._rng, count) if self._loads is not None else None
        if drawn is None:
            places = topic.available or range(len(topic.partitions))
            drawn = [places[int(self._rng.random() * len(places))] for _ in range(count)]
        *others, last = drawn
        first = StickyPartition(last, self._batch_size)
        for partition in reversed(others):
            first = StickyPartition(partition, self._batch_size, first)
        return first

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Count the record's bytes; switch to another partition if it is time."""
        with self._lock:
            sticky = self.sticky(topic.name)
            if sticky is not None and self._counted(sticky, partition, nbytes, batch_ready):
                self._stick(topic)

    @staticmethod
    def _counted(sticky: StickyPartition, partition: int, nbytes: int, batch_ready: bool) -> bool:
        """Count the bytes; return whether the sticky partition has received its share."""
        # A thread that chose before another one switched reports the partition left behind.
        return sticky.partition == partition and sticky.add(nbytes, batch_ready)


_number = attrgetter("partition")


def _usable(topic: TopicInfo, sticky: StickyPartition) -> bool:
    """Whether ``sticky`` has a share left, and it and the partitions after it can take records.

    The compiled ``send`` switches to the partitions after it without checking for their leaders.
    """
    return not sticky.spent and topic.can_take([*map(_number, sticky.chain())])


class RoundRobinPartitioner:
    """One partition after the other, per topic, with or without a key (``RoundRobinPartitioner``).

    Partitions without a leader are skipped if any partition has one. Thread-safe. Batches fill
    slowly, because records are spread over all partitions.
    """

    def __init__(self) -> None:
        self._turns: dict[str, Iterator[int]] = {}

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """The next partition. Raises PartitionError for a topic without partitions."""
        turns = self._turns.get(topic.name)
        if turns is None:
            # Of two threads that come first, both go on with the counter that got in.
            turns = self._turns.setdefault(topic.name, count())
        candidates = topic.available or range(len(topic.partitions))
        if not candidates:
            raise no_partitions(topic)
        return candidates[next(turns) % len(candidates)]

    def forget(self, topics: Container[str]) -> None:
        """Forget these topics. If one is used again, it begins with its first partition."""
        turns = list(self._turns.items())
        self._turns = {topic: each for topic, each in turns if topic not in topics}

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Nothing to remember."""
