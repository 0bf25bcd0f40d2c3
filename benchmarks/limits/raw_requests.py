"""Finished Produce requests, as kprod sends them: what the physical limits are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.rivals.settings import TOPIC
from kprod.wire.produce import encode_produce_request
from kprod_ext import BufferPool, MemoryRecordsBuilder, PooledBuffer

VERSION = 9
PARTITIONS = 6
TIMESTAMP_MS = 1_700_000_000_000


class RawRequest(NamedTuple):
    """One request as pieces for ``sendmsg``: the records are views of the memory of batches."""

    pieces: Sequence[bytes | memoryview]
    records: int

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return sum(map(len, self.pieces))


def raw_request(values: Sequence[bytes], batch_size: int) -> RawRequest:
    """A request with a full batch for each of six partitions, from the first of the values.

    With fewer values than that, the batches hold what there is. Raises ValueError for no values.
    """
    if not values:
        raise ValueError("a request needs records")
    pool = BufferPool(PARTITIONS * batch_size, batch_size)
    batches: list[tuple[int, list[memoryview]]] = []
    used = 0
    for partition in range(PARTITIONS):
        builder = _filled(pool.allocate(batch_size, 0.0), values[used:], batch_size)
        used += builder.record_count
        if builder.record_count:
            batches.append((partition, builder.pieces()))
    pieces = encode_produce_request(VERSION, 1, "limits", -1, 30_000, {TOPIC: batches})
    return RawRequest(pieces, used)


def _filled(buffer: PooledBuffer, values: Sequence[bytes], batch_size: int) -> MemoryRecordsBuilder:
    builder = MemoryRecordsBuilder(buffer, write_limit=batch_size)
    for value in values:
        if not builder.try_append(TIMESTAMP_MS, None, value):
            break
    builder.set_producer_state(4000, 0, 0)
    builder.close()
    return builder
