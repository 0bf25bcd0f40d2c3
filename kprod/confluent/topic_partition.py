"""TopicPartition, and the functions that map keys to partitions."""

from __future__ import annotations

from functools import total_ordering

from kprod.intake.partitioner import CRC32, FNV1A, MURMUR2, KeyHash

OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, OFFSET_INVALID = -2, -1, -1000, -1001


@total_ordering
class TopicPartition:
    """A topic, a partition and an offset. Objects with equal topic and partition are equal.

    ``partition`` and ``offset`` can be changed.
    """

    __slots__ = ("_leader_epoch", "_metadata", "_topic", "offset", "partition")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        """Raise TypeError for a value of another type."""
        self._topic, self.partition, self.offset = topic, partition, offset
        self._metadata = metadata
        self._leader_epoch: int | None = None
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        for name, value in (("partition", partition), ("offset", offset)):
            if not isinstance(value, int):
                raise TypeError(f"{name} must be int, not {type(value).__name__}")
        if not isinstance(metadata, str | None):
            raise TypeError(f"metadata must be str, not {type(metadata).__name__}")
        if leader_epoch is not None and leader_epoch >= 0:
            self._leader_epoch = leader_epoch

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    @property
    def metadata(self) -> str | None:
        """A string of the application, which is stored with the offset."""
        return self._metadata

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch of the offset's record, if it is known."""
        return self._leader_epoch

    @property
    def error(self) -> None:
        """Always None, because a producer never sets it."""
        return None

    def _key(self) -> tuple[str, int]:
        return self._topic, self.partition

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, TopicPartition) else NotImplemented

    def __lt__(self, other: TopicPartition) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self._topic},partition={self.partition},offset={self.offset}"
            f",leader_epoch={self._leader_epoch},error=None}}"
        )


def murmur2(key: bytes, partition_count: int) -> int:
    """Choose a partition like Kafka's Java client. Raises TypeError and ValueError."""
    return _placed(MURMUR2, key, partition_count)


def consistent(key: bytes, partition_count: int) -> int:
    """Choose a partition by CRC-32, librdkafka's default. Raises TypeError and ValueError."""
    return _placed(CRC32, key, partition_count)


def fnv1a(key: bytes, partition_count: int) -> int:
    """Choose a partition like Sarama. Raises TypeError and ValueError."""
    return _placed(FNV1A, key, partition_count)


def _placed(by: KeyHash, key: bytes, partition_count: int) -> int:
    if not isinstance(key, bytes):
        raise TypeError(f"key must be bytes, not {type(key).__name__}")
    if not isinstance(partition_count, int):
        raise TypeError("partition_count must be int")
    if partition_count <= 0:
        raise ValueError("partition_count must be > 0")
    return by.partition(key, partition_count)
