"""The queue of batches of one partition, and the clock of records."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from crc32c import crc32c

from kprod.errors import KprodError
from kprod_ext import BufferPool, PartitionQueue, RecordClock
from tests.support.batch_writing import new_builder
from tests.support.partition_queues import SETTINGS, ignore, new_queue

VALUE = bytes(100)
ENDED_QUEUES = 20 if getattr(sys, "_is_gil_enabled", lambda: True)() else 500
"""With a GIL no reader is interrupted between reading a batch and locking its queue."""


def test_a_record_without_room_begins_the_next_batch() -> None:
    woken: list[float | None] = []
    marked: deque[PartitionQueue] = deque()
    queue = new_queue(
        wake=lambda: woken.append(None), wake_within=woken.append, on_change=marked.append
    )
    results = [queue.append(1, None, VALUE, ()) for _ in range(4)]
    assert [result.linger for result in results] == [SETTINGS.linger, None, None, SETTINGS.linger]
    assert [result.future.index for result in results] == [0, 1, 2, 0]
    assert [result.wake_sender for result in results] == [False, False, False, True]
    assert woken == [SETTINGS.linger, None]
    assert list(marked) == [queue, queue]
    assert queue.depth == 2
    assert queue.head() == (queue.oldest, True)


@pytest.mark.parametrize("most", [1_000, 3_000, 100_000])
@pytest.mark.parametrize("size", [0, 1, 99, 700])
def test_a_batch_filled_by_appends_has_its_checksum(most: int, size: int) -> None:
    pool = BufferPool(1_000_000, 1000)
    queue = new_queue(batch_size=1000, batch_max_size=most, pool=pool)
    queue.grows_to = most
    while queue.depth < 2:
        assert queue.append(1, b"key", bytes(size), ()) is not None
    queue.close_head()
    batch = queue.take_head()
    batch.set_producer_state(7, 1, 3)
    batch.close()
    for producer in (8, 7):
        built = bytes(batch.build())
        assert len(built) > 0.4 * most
        assert crc32c(built[21:]) == int.from_bytes(built[17:21], "big")
        batch.reopen_producer_state(producer, 2, 0)


@pytest.mark.parametrize(("closes", "index"), [(False, 1), (True, 0)])
def test_a_concurrent_append_or_close_precedes_a_new_batch(closes: bool, index: int) -> None:
    """Another thread opens a batch, or closes the queue, while the clock is read."""
    to_come = [True]

    def now() -> float:
        if to_come:
            to_come.clear()
            queue.append(5, None, b"first", ())
            if closes:
                queue.context.closings += 1
                queue.close_open_batch()
        return 0.0

    queue: Any = new_queue(now=now)
    result = queue.append(6, None, b"second", ())
    assert (result.future.index, result.future.timestamp) == (index, 6)
    assert [batch.record_count for batch in queue.take_all()] == [2 - closes] + [1] * closes


def test_an_open_batch_stamps_records_without_a_timestamp() -> None:
    """If the source of time fails, the last time is used."""
    moments = iter([70, 60, 80])
    queue = new_queue(clock=RecordClock(lambda: next(moments)))
    given = (None, None, 65, None, None)
    results = [queue.append(time_ms, None, b"x", ()) for time_ms in given]
    assert [result.future.timestamp for result in results] == [70, 70, 65, 80, 80]


def test_a_long_queue_is_freed() -> None:
    pool = BufferPool(20_000_000, 70)
    queue = new_queue(batch_size=70, pool=pool, delivery_type=lambda *_: object())
    for _ in range(100_000):
        queue.append(1, None, b"", ())
    del queue
    gc.collect()
    assert pool.available == pool.total


@pytest.mark.timeout(400)
def test_a_batch_can_be_read_while_its_queue_is_freed() -> None:
    """A reader that waits for the lock of a queue's tail gets it even after the queue is freed.

    Without a GIL each collection stops the readers and traverses the objects of earlier tests,
    frozen or not: 54 ms with two million objects, 130 ms with three other programs on two cores.
    """
    newest: list[Any] = [new_builder(1000)]
    over = threading.Event()

    def read() -> int:
        reads = 0
        while not over.is_set():
            batch = newest[0]
            assert 0 <= batch.record_count <= 3
            assert batch.is_full in (False, True)
            reads += 1
        return reads

    gc.freeze()  # with a GIL collections below then traverse the queue only
    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(ENDED_QUEUES):
                queue = new_queue(on_change=ignore)
                queue.append(1, None, VALUE, ())
                newest[0] = queue.oldest
                queue.append(2, None, VALUE, ())
                queue.append(3, None, VALUE, ())
                queue.close_head()
                queue.take_head().delivery.fail(KprodError("ended"))
                del queue
                gc.collect()  # it refers to itself
        finally:
            over.set()
            gc.unfreeze()
    assert all(reader.result() for reader in readers)


def test_a_batch_that_failed_for_lack_of_memory_is_not_incomplete() -> None:
    """A set that cannot grow raises MemoryError after adding the new element."""
    memory = pytest.importorskip("_testcapi", reason="this Python comes without its hooks")
    refused = 0
    for failing in range(60):
        incomplete: set[Any] = set(range(4))  # a fifth element makes it grow
        queue = new_queue(incomplete=incomplete)
        gc.disable()  # a collection would print that it cannot call its callbacks
        memory.set_nomemory(failing, failing + 1)
        try:
            queue.append(1, None, VALUE, ())
        except (MemoryError, SystemError):
            refused += 1
        finally:
            memory.remove_mem_hooks()
            gc.enable()
        assert len(incomplete) == 4 + (queue.oldest is not None)
    assert refused > 3


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="collects between two lines of Python only")
def test_a_batch_may_be_renumbered_and_released_during_its_checksum() -> None:
    """A collection during the calculation lets other threads run, such as the sender."""
    pool = BufferPool(1_000_000, 1000)
    queue = new_queue(batch_size=1000, batch_max_size=50_000, pool=pool)
    queue.grows_to = 50_000
    gone: list[Any] = []

    def send(phase: str, _: dict[str, int]) -> None:
        if phase == "start" and not gone and queue.oldest.closed_for_append:
            gone.append(queue.oldest)
            queue.close_head()
            batch = queue.take_head()
            batch.close()
            batch.reopen_producer_state(8, 2, 0)
            batch.release()

    queue.append(1, b"key", bytes(90), ())
    kept = [(n, n, n) for n in range(3000)]  # so that arguments of a call are allocated anew
    thresholds = gc.get_threshold()
    gc.callbacks.append(send)
    gc.set_threshold(1)
    try:
        while not gone:
            assert queue.append(1, b"key", bytes(90), ()) is not None
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(send)
    assert len(kept) == 3000
    assert queue.append(1, b"key", bytes(90), ()) is not None
    gone.clear()
    queue.close_head()
    queue.take_head().release()
    assert pool.available == pool.total


MINUTE = 60_000
TICK_MS = 20
"""No system has a coarser clock."""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ((MINUTE, MINUTE - 1, 1, MINUTE + 1), [MINUTE, MINUTE, MINUTE, MINUTE + 1]),
        # A clock that was wrong by more than a minute is corrected.
        ((5 * MINUTE, 4 * MINUTE - 1, 4 * MINUTE), [5 * MINUTE, 4 * MINUTE - 1, 4 * MINUTE]),
    ],
)
def test_the_clock_stops_while_its_source_is_set_back_a_little(
    source: tuple[int, ...], expected: list[int]
) -> None:
    moments = iter(source)
    clock = RecordClock(lambda: next(moments))
    assert [clock.wall_ms() for _ in source] == expected


def test_without_a_source_the_clock_has_the_time_of_day() -> None:
    clock = RecordClock()
    before = time.time_ns() // 1_000_000
    assert before - TICK_MS <= clock.wall_ms() <= time.time_ns() // 1_000_000
