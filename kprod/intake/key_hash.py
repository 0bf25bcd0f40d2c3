"""How the bytes of a key become a partition, in the ways of the Kafka clients there are."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

from kprod.types import BytesLike
from kprod_ext import fnv1a, murmur2

_BITS = 0xFFFFFFFF


class KeyHash(NamedTuple):
    """A key goes to ``(hash(key) & mask) % partitions``, of all partitions with or without leader.

    ``empty_is_a_key``: whether ``b""`` is hashed too; if not, it counts as no key.
    """

    hash: Callable[[BytesLike], int]
    mask: int
    empty_is_a_key: bool = True


def _fnv1a_distance(data: BytesLike) -> int:
    # Sarama takes the hash for a signed number, its remainder with the sign of the hash, and then
    # the magnitude of that: the same as the remainder of the magnitude.
    state = fnv1a(data)
    return state if state < 1 << 31 else (1 << 32) - state


MURMUR2 = KeyHash(murmur2, 0x7FFFFFFF)
"""Kafka's Java client (``BuiltInPartitioner.partitionForKey``), kafka-python, franz-go."""

CRC32 = KeyHash(zlib.crc32, _BITS, empty_is_a_key=False)
"""librdkafka's default, ``consistent_random``."""

FNV1A = KeyHash(_fnv1a_distance, _BITS)
"""Sarama's default, ``NewHashPartitioner``; librdkafka's ``fnv1a_random``."""
