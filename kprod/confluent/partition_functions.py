"""Which partition a key goes to, by the three hashes that librdkafka has names for"""

from __future__ import annotations

from kprod.intake.partitioner import CRC32, FNV1A, MURMUR2, KeyHash


def murmur2(key: bytes, partition_count: int) -> int:
    """As Kafka's Java client. Raises TypeError and ValueError."""
    return _placed(MURMUR2, key, partition_count)


def consistent(key: bytes, partition_count: int) -> int:
    """By CRC-32, as librdkafka's own default. Raises TypeError and ValueError."""
    return _placed(CRC32, key, partition_count)


def fnv1a(key: bytes, partition_count: int) -> int:
    """As Sarama. Raises TypeError and ValueError."""
    return _placed(FNV1A, key, partition_count)


def _placed(by: KeyHash, key: bytes, partition_count: int) -> int:
    if not isinstance(key, bytes):
        raise TypeError(f"key must be bytes, not {type(key).__name__}")
    if not isinstance(partition_count, int):
        raise TypeError("partition_count must be int")
    if partition_count <= 0:
        raise ValueError("partition_count must be > 0")
    return by.partition(key, partition_count)
