"""Which partition a record goes to when it names none."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from kprod.cluster.snapshot import NO_LEADER, TopicInfo
from kprod.config.shown import shown
from kprod.errors import PartitionError
from kprod.types import BytesLike
from kprod_ext import murmur2

_log = logging.getLogger("kprod.intake.partitioner")

_SIGN = 0x7FFFFFFF


class Partitioner(Protocol):
    """Chooses partitions, and is told what came of it. Called by every thread that sends."""

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """The number of one of the topic's partitions."""
        ...

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """A record took ``nbytes`` in ``partition``, which has a full batch if ``batch_ready``."""
        ...


class _Sticky:
    """The partition that records without a key go to, and the bytes it got since it was chosen."""

    __slots__ = ("partition", "produced")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.produced = 0


class DefaultPartitioner:
    """Kafka's own choice: by murmur2 of the key over all partitions, else one partition at a time.

    Without a key records stay on one partition until it got ``batch_size`` bytes and its batch is
    full, at most twice ``batch_size``; the next is drawn uniformly from the partitions that have a
    leader (``BuiltInPartitioner``, KIP-794, without its load table). Records with a key that fall
    on the sticky partition count too: they fill the same batch. Thread-safe.
    """

    def __init__(self, batch_size: int, rng: random.Random | None = None) -> None:
        self._batch_size = batch_size
        self._lock = threading.Lock()  # guards what follows; choose() reads _sticky without it
        self._rng = rng if rng is not None else random.Random()
        self._sticky: dict[str, _Sticky] = {}

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """The partition of the key; without a key the topic's sticky partition."""
        count = len(topic.partitions)
        if count == 0:
            raise PartitionError(f"topic {topic.name!r} has no partitions")
        if key is not None:
            return (murmur2(key) & _SIGN) % count
        sticky = self._sticky.get(topic.name)
        if sticky is not None and _usable(topic, sticky.partition):
            return sticky.partition
        return self._choose_again(topic)

    def _choose_again(self, topic: TopicInfo) -> int:
        with self._lock:
            sticky = self._sticky.get(topic.name)
            # Looked at again: of several threads that found the partition without a leader only the
            # first draws, the others follow it and so fill the same batch.
            if sticky is None or not _usable(topic, sticky.partition):
                sticky = self._sticky[topic.name] = self._drawn(topic)
            return sticky.partition

    def _drawn(self, topic: TopicInfo) -> _Sticky:
        candidates = topic.available or range(len(topic.partitions))
        return _Sticky(self._rng.choice(candidates))

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Count towards the switch to another partition."""
        with self._lock:
            sticky = self._sticky.get(topic.name)
            # A thread that chose before another one switched reports the partition left behind.
            if sticky is None or sticky.partition != partition:
                return
            sticky.produced += nbytes
            enough = self._batch_size if batch_ready else 2 * self._batch_size
            if sticky.produced >= enough:
                self._sticky[topic.name] = self._drawn(topic)


def _usable(topic: TopicInfo, partition: int) -> bool:
    """Whether a partition exists and has a leader, or no other has one either."""
    if partition >= len(topic.partitions):
        return False
    return topic.partitions[partition].leader_id != NO_LEADER or not topic.available


class CallablePartitioner:
    """An application's function ``f(key_bytes, all_partitions, available_partitions) -> int``.

    The form of kafka-python; both sequences are tuples of partition numbers in order. Anything but
    an ``int`` that the topic has, and any exception, becomes a PartitionError. Thread-safe if ``f``
    is.
    """

    def __init__(self, function: Callable[[Any, Sequence[int], Sequence[int]], Any]) -> None:
        self._function = function

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """What the function chose. Raises PartitionError."""
        try:
            chosen = self._function(key, _numbers(len(topic.partitions)), topic.available)
        except Exception as error:
            raise _failed(self._function, topic, error) from error
        return _checked(self._function, topic, chosen)

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Nothing to remember."""


class CheckedPartitioner:
    """An application's Partitioner, whose mistakes become a PartitionError."""

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """What the partitioner chose. Raises PartitionError."""
        try:
            chosen = self._partitioner.choose(topic, key)
        except Exception as error:
            raise _failed(self._partitioner, topic, error) from error
        return _checked(self._partitioner, topic, chosen)

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Pass it on. A failure is logged only: the record is in its batch already."""
        try:
            self._partitioner.appended(topic, partition, nbytes, batch_ready)
        except Exception:
            _log.exception("%s.appended failed", type(self._partitioner).__name__)


def partitioner_for(option: Any, batch_size: int) -> Partitioner:
    """What the option ``partitioner`` asks for: None, a callable, or a Partitioner."""
    if option is None:
        return DefaultPartitioner(batch_size)
    if callable(getattr(option, "choose", None)):
        return CheckedPartitioner(option)
    return CallablePartitioner(option)


@lru_cache(maxsize=64)
def _numbers(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def _checked(source: Any, topic: TopicInfo, chosen: Any) -> int:
    count = len(topic.partitions)
    if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < count:
        return int(chosen)
    raise PartitionError(
        f"partitioner {_name(source)}: expected an int from 0 to {count - 1} for topic"
        f" {topic.name!r}, got {shown(chosen)}"
    )


def _failed(source: Any, topic: TopicInfo, error: Exception) -> PartitionError:
    return PartitionError(
        f"partitioner {_name(source)} failed for topic {topic.name!r}:"
        f" {type(error).__name__}: {error}"
    )


def _name(source: Any) -> str:
    return getattr(source, "__qualname__", None) or type(source).__qualname__
