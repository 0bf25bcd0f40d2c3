"""How long does one append take, by value size, when the batch has room?

One round fills a fresh batch with ``RECORDS`` records, so a record's share is the round's time
divided by ``RECORDS``; the Python loop around the call is part of it (`extra_info` has the figure
in nanoseconds). The pool, the buffer and the builder are made outside the measured time.
"""

from __future__ import annotations

from typing import Any

import pytest

from kprod_ext import BufferPool, MemoryRecordsBuilder, PooledBuffer, batch_size_upper_bound

RECORDS = 1_000
TIMESTAMP_MS = 1_700_000_000_000


@pytest.mark.parametrize("value_bytes", [10, 100, 1_000])
@pytest.mark.parametrize("key", [None, b"a-key-of-16-byte"], ids=["no-key", "keyed"])
def test_append(benchmark: Any, value_bytes: int, key: bytes | None) -> None:
    value = bytes(value_bytes)
    room = RECORDS * batch_size_upper_bound(key, value)
    pool = BufferPool(room, room)
    lent: list[PooledBuffer] = []

    def fresh_batch() -> tuple[tuple[MemoryRecordsBuilder], dict[str, Any]]:
        if lent:
            pool.deallocate(lent.pop())
        lent.append(pool.allocate(room, 0.0))
        return (MemoryRecordsBuilder(lent[0], write_limit=room),), {}

    def fill(builder: MemoryRecordsBuilder) -> int:
        taken = 0
        for _ in range(RECORDS):
            taken += builder.try_append(TIMESTAMP_MS, key, value)
        return taken

    assert benchmark.pedantic(fill, setup=fresh_batch, rounds=300, warmup_rounds=20) > 0
    benchmark.extra_info["ns_per_record"] = round(benchmark.stats["median"] * 1e9 / RECORDS, 1)
