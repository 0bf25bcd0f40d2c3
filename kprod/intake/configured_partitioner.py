"""The partitioner that the options select: kprod's own, or the application's with checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from kprod.cluster.snapshot import TopicInfo
from kprod.config import ProducerConfig
from kprod.config.kinds import safe_repr
from kprod.errors import PartitionError
from kprod.intake.partitioner import (
    CRC32,
    FNV1A,
    MURMUR2,
    DefaultPartitioner,
    KeyHash,
    Partitioner,
    RoundRobinPartitioner,
)
from kprod.intake.queue_loads import QueueLoads
from kprod.types import BytesLike

_log = logging.getLogger("kprod.intake.partitioner")


class CallablePartitioner:
    """An application's function ``f(key_bytes, all_partitions, available_partitions) -> int``.

    This is kafka-python's signature; both sequences are sorted tuples of partition numbers. A
    PartitionError is raised for any exception of ``f``, and for a result that is not the number of
    one of the topic's partitions. Thread-safe if ``f`` is.
    """

    def __init__(self, function: Callable[[Any, Sequence[int], Sequence[int]], Any]) -> None:
        self._function = function

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """Return the partition that the function chooses. Raises PartitionError."""
        try:
            every, available = _numbers(len(topic.partitions)), topic.available
            if not isinstance(available, tuple):  # all of them
                available = every
            chosen = self._function(key, every, available)
        except Exception as error:
            raise _failed(self._function, topic, error) from error
        return _checked(self._function, topic, chosen)

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Nothing to remember."""


class CheckedPartitioner:
    """An application's Partitioner; its exceptions and invalid results become a PartitionError."""

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner

    def choose(self, topic: TopicInfo, key: BytesLike | None) -> int:
        """Return the partition that the partitioner chooses. Raises PartitionError."""
        try:
            chosen = self._partitioner.choose(topic, key)
        except Exception as error:
            raise _failed(self._partitioner, topic, error) from error
        return _checked(self._partitioner, topic, chosen)

    def appended(self, topic: TopicInfo, partition: int, nbytes: int, batch_ready: bool) -> None:
        """Notify the partitioner. Only log exceptions: the record is already in its batch."""
        try:
            self._partitioner.appended(topic, partition, nbytes, batch_ready)
        except Exception:
            _log.exception("%s.appended failed", type(self._partitioner).__name__)


class TurningPartitioner(CheckedPartitioner):
    """A partitioner that may switch to another partition when a batch would begin (KIP-480)."""

    def on_new_batch(self, topic: TopicInfo, previous: int) -> None:
        """Notify the partitioner.

        Raises PartitionError if that fails; the record is then not queued.
        """
        try:
            self._partitioner.on_new_batch(topic, previous)  # type: ignore[attr-defined]
        except Exception as error:
            raise _failed(self._partitioner, topic, error) from error


@lru_cache(maxsize=64)
def _numbers(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def _checked(source: Any, topic: TopicInfo, chosen: Any) -> int:
    count = len(topic.partitions)
    if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < count:
        return int(chosen)
    raise PartitionError(
        f"partitioner {_name(source)}: expected an int from 0 to {count - 1} for topic"
        f" {topic.name!r}, got {safe_repr(chosen)}"
    )


def _failed(source: Any, topic: TopicInfo, error: Exception) -> PartitionError:
    return PartitionError(
        f"partitioner {_name(source)} failed for topic {topic.name!r}:"
        f" {type(error).__name__}: {error}"
    )


def _name(source: Any) -> str:
    return getattr(source, "__qualname__", None) or type(source).__qualname__


KEY_HASHES: dict[str, KeyHash] = {"default": MURMUR2, "crc32": CRC32, "fnv1a": FNV1A}


def partitioner_for(
    option: Any,
    batch_size: int,
    *,
    ignore_keys: bool = False,
    loads: QueueLoads | None = None,
) -> Partitioner:
    """Create the partitioner for the option ``partitioner``: a name, a function or an object.

    Only partitioners that keep records without a key together use ``loads``.
    """
    if option == "round_robin":
        return RoundRobinPartitioner()
    if isinstance(option, str):
        key_hash = None if ignore_keys else KEY_HASHES[option]
        return DefaultPartitioner(batch_size, key_hash=key_hash, loads=loads)
    if callable(getattr(option, "choose", None)):
        turns = callable(getattr(option, "on_new_batch", None))
        return TurningPartitioner(option) if turns else CheckedPartitioner(option)
    return CallablePartitioner(option)


def compiled_partitioner(
    config: ProducerConfig, partitioner: Partitioner
) -> DefaultPartitioner | None:
    """The partitioner if the compiled ``send`` can do its work, otherwise None.

    That is possible only if no code of the application, except serializers, has to see each record
    before it is queued.
    """
    if config.interceptors:
        return None
    if config.dead_letter_topic is not None:  # a letter needs what was sent
        return None
    if isinstance(partitioner, DefaultPartitioner) and partitioner.hashes_by_murmur2:
        return partitioner
    return None
