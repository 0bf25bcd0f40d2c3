"""How the bytes of a key become a partition, in the ways of the Kafka clients there are."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

from kprod.types import BytesLike
from kprod_ext import fnv1a, partition_for_key


class KeyHash(NamedTuple):
    """``partition(key, partitions)`` is one of all partitions, with or without a leader.

    ``empty_is_a_key``: whether ``b""`` is hashed too; if not, it counts as no key.
    """

    partition: Callable[[BytesLike, int], int]
    empty_is_a_key: bool = True


def _by_crc32(key: BytesLike, partitions: int) -> int:
    return zlib.crc32(key) % partitions


def _by_fnv1a(key: BytesLike, partitions: int) -> int:
    return magnitude(fnv1a(key)) % partitions


def magnitude(state: int) -> int:
    """The hash without its sign, where Sarama takes 32 bits for a signed number.

    Sarama takes the remainder with the sign of the hash, and then the magnitude of that: the same
    as the remainder of the magnitude.
    """
    return state if state < 1 << 31 else (1 << 32) - state


MURMUR2 = KeyHash(partition_for_key)
"""Kafka's Java client (``BuiltInPartitioner.partitionForKey``), kafka-python, franz-go."""

CRC32 = KeyHash(_by_crc32, empty_is_a_key=False)
"""librdkafka's default, ``consistent_random``."""

FNV1A = KeyHash(_by_fnv1a)
"""Sarama's default, ``NewHashPartitioner``; librdkafka's ``fnv1a_random``."""
