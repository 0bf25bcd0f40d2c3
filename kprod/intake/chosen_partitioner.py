"""From the options to the partitioner they ask for."""

from __future__ import annotations

from typing import Any

from kprod.intake.key_hash import CRC32, FNV1A, MURMUR2, KeyHash
from kprod.intake.own_partitioner import (
    CallablePartitioner,
    CheckedPartitioner,
    TurningPartitioner,
)
from kprod.intake.partitioner import DefaultPartitioner, Partitioner
from kprod.intake.queue_loads import QueueLoads
from kprod.intake.round_robin import RoundRobinPartitioner

KEY_HASHES: dict[str, KeyHash] = {"default": MURMUR2, "crc32": CRC32, "fnv1a": FNV1A}


def partitioner_for(
    option: Any,
    batch_size: int,
    *,
    ignore_keys: bool = False,
    loads: QueueLoads | None = None,
) -> Partitioner:
    """The partitioner that the option ``partitioner`` names or is: a name, callable or object.

    ``loads`` is for those that keep records without a key together; the others do without.
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
