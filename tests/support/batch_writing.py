"""Creates builders and batches in one call."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kprod_ext import BufferPool, MemoryRecordsBuilder

HEADER_BYTES = 61


class Written(NamedTuple):
    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def new_builder(capacity: int = 16_384, **options: Any) -> MemoryRecordsBuilder:
    """An open builder on a buffer of ``capacity`` bytes from its own pool."""
    options.setdefault("write_limit", capacity)
    pool = options.get("pool") or BufferPool(16 * capacity, capacity)
    return MemoryRecordsBuilder(pool.allocate(capacity, 0), **options)


def write_batch(records: Iterable[Written], capacity: int = 16_384, **state: Any) -> bytes:
    """The closed batch of ``records``; ``state`` goes to ``set_producer_state``."""
    builder = new_builder(capacity)
    for record in records:
        builder.append(*record)
    if state:
        builder.set_producer_state(**state)
    builder.close()
    return bytes(builder.build())


def as_produced(batch: bytes) -> bytes:
    """A batch from a log as sent by its producer, without offset and leader epoch."""
    return struct.pack(">q4si", 0, batch[8:12], -1) + batch[16:]
