"""A pool's count of used memory is exact after any sequence of calls of one thread."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from kprod_ext import BufferPool, MemoryRecordsBuilder, PooledBuffer
from tests.support.tier import examples

TOTAL = 2000


class PoolMachine(RuleBasedStateMachine):
    """Allocates, frees, views and grows buffers; ``live`` are those in use."""

    buffers = Bundle("buffers")
    returned = Bundle("returned")
    views = Bundle("views")

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, PooledBuffer] = {}

    @initialize(poolable_size=st.sampled_from([0, 1, 100, 700]))
    def make_pool(self, poolable_size: int) -> None:
        self.pool = BufferPool(TOTAL, poolable_size)

    @rule(target=buffers, size=st.one_of(st.just(None), st.integers(1, TOTAL)))
    def allocate(self, size: int | None) -> object:
        size = size or self.pool.poolable_size or 1
        if size > self.pool.available:
            with pytest.raises(TimeoutError):
                self.pool.allocate(size, 0)
            return multiple()
        buffer = self.pool.allocate(size, 0)
        assert buffer.capacity == size
        self.live[id(buffer)] = buffer
        return buffer

    @rule(target=returned, buffer=consumes(buffers))
    def deallocate(self, buffer: PooledBuffer) -> PooledBuffer:
        self.pool.deallocate(buffer)
        del self.live[id(buffer)]
        return buffer

    @rule(buffer=returned)
    def deallocate_again(self, buffer: PooledBuffer) -> None:
        with pytest.raises(ValueError, match=r"before|not from this pool"):
            self.pool.deallocate(buffer)

    @rule(target=views, buffer=buffers, fill=st.integers(0, 255))
    def view(self, buffer: PooledBuffer, fill: int) -> tuple[memoryview, bytes]:
        view = memoryview(buffer)
        view[:] = bytes([fill]) * len(view)
        return view, bytes(view)

    @rule(held=consumes(views))
    def release_view(self, held: tuple[memoryview, bytes]) -> None:
        view, _ = held
        view.release()

    @rule(buffer=returned)
    def view_a_freed_buffer(self, buffer: PooledBuffer) -> None:
        with pytest.raises(BufferError):
            memoryview(buffer)

    @rule(buffer=buffers, count=st.integers(1, 40), compression=st.integers(0, 1))
    def grow(self, buffer: PooledBuffer, count: int, compression: int) -> None:
        """Records may need more memory than the buffer has, contiguous if they are compressed."""
        if buffer.capacity < 61 or buffer.lent or buffer.chunk_bytes:
            return
        builder = MemoryRecordsBuilder(
            buffer,
            write_limit=TOTAL,
            full_size=1,
            compression=compression,
            compression_ratio=0.01,
            pool=self.pool,
        )
        while count and builder.try_append(0, None, b"v" * 50):
            count -= 1
        assert builder.uncompressed_bytes <= buffer.capacity + buffer.chunk_bytes
        assert not (compression and buffer.chunk_bytes)

    @rule()
    def close(self) -> None:
        """Closing stops allocation only; a new pool replaces it."""
        if self.live:
            return
        self.pool.close()
        with pytest.raises(RuntimeError):
            self.pool.allocate(1, 0)
        self.pool = BufferPool(TOTAL, self.pool.poolable_size)

    @invariant()
    def used_memory_is_exact(self) -> None:
        if hasattr(self, "pool"):
            used = sum(buffer.capacity + buffer.chunk_bytes for buffer in self.live.values())
            assert self.pool.available == TOTAL - used
            assert 0 <= used <= TOTAL

    def teardown(self) -> None:
        for buffer in self.live.values():
            self.pool.deallocate(buffer)
        if hasattr(self, "pool"):  # missing after an error in make_pool
            assert self.pool.available == TOTAL


TestBufferPool = PoolMachine.TestCase
TestBufferPool.settings = settings(max_examples=examples(20), stateful_step_count=40)
