"""Records go into the open batch of their partition, or wait for memory, or are refused whole."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from kprod.errors import BufferFullError, ProducerClosedError
from kprod.types import TopicPartition
from kprod_ext.futures import FutureRecordMetadata
from kprod_ext.partition_queue import PartitionQueue
from tests.support.pool_waiter import wait_until
from tests.unit.buffer.accumulating import BATCH, VALUE, Accumulating, read

LONG = 20.0


def test_without_memory_a_record_is_refused_in_time() -> None:
    rig = Accumulating(batches=1)
    rig.append(0)
    with pytest.raises(
        BufferFullError, match=r"no room for 1000 bytes within 0\.01 s: buffer_memory"
    ):
        rig.append(1, timeout=0.01)
    assert len(rig.accumulator.incomplete) == 1
    assert rig.used == BATCH
    assert rig.pool.waiting == 0


def test_a_caller_that_finds_no_memory_and_does_not_wait_lets_no_batch_linger() -> None:
    rig = Accumulating(batches=1)
    rig.append(0)
    assert rig.ready() == {}
    rig.wakes.clear()
    with pytest.raises(BufferFullError):
        rig.append(1)
    assert rig.wakes
    (batch,) = rig.drain()
    batch.release()
    rig.append(0)
    assert rig.ready() == {}


def test_who_finds_a_batch_opened_meanwhile_joins_it_and_returns_the_memory() -> None:
    rig = Accumulating(batches=2)
    rig.append(0)
    rig.append(1)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(rig.append, 2, b"waited", timeout=LONG) for _ in range(2)]
        wait_until(lambda: rig.pool.waiting == 2)
        for batch in rig.take_all():
            batch.release()
        for waiting in both:
            waiting.result(LONG)
    (batch,) = rig.take_all()
    assert batch.record_count == 2
    assert rig.used == BATCH


def test_a_buffer_that_grows_while_it_waits_is_appended_as_it_was_given() -> None:
    rig = Accumulating(batches=2)
    rig.append(0)
    rig.append(1)
    given = bytearray(VALUE)
    waiting = threading.Thread(target=rig.append, args=(2, given), kwargs={"timeout": LONG})
    waiting.start()
    wait_until(lambda: rig.pool.waiting == 1)
    given.extend(bytes(BATCH))
    for batch in rig.take_all():
        batch.release()
    waiting.join(LONG)
    (batch,) = rig.take_all()
    batch.close()
    (record,) = read(batch).records()
    assert record.value == VALUE


def test_closing_ends_the_wait_for_memory() -> None:
    rig = Accumulating(batches=1)
    rig.append(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.append, 1, timeout=LONG)
        wait_until(lambda: rig.pool.waiting == 1)
        rig.accumulator.close()
        with pytest.raises(ProducerClosedError):
            waiting.result(LONG)
    assert len(rig.accumulator.incomplete) == 1


def test_a_record_that_was_taken_before_closing_is_there_after_closing() -> None:
    rig = Accumulating(batches=2000)
    taken: list[FutureRecordMetadata] = []
    started = threading.Semaphore(0)

    def append_until_closed(thread: int) -> None:
        mine = []
        with suppress(ProducerClosedError):
            for number in range(100_000):  # which one may reach before the others have begun
                mine.append(rig.append(thread * 2 + number % 2, b"v").future)
                if number == 20:
                    started.release()
        taken.extend(mine)

    threads = [threading.Thread(target=append_until_closed, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert started.acquire(timeout=LONG)
    rig.accumulator.close()
    batches = rig.take_all()
    for thread in threads:
        thread.join(LONG)
    assert sum(batch.record_count for batch in batches) == len(taken)
    assert rig.take_all() == []
    for batch in batches:
        batch.release()
    assert rig.used == 0


def test_threads_that_want_the_queue_of_a_partition_get_the_same() -> None:
    rig = Accumulating()
    start = threading.Barrier(4)

    def want(_: int) -> list[PartitionQueue]:
        start.wait()
        queue_of = rig.accumulator.partition_queue
        return [queue_of(TopicPartition("t", number)) for number in range(200)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(want, range(4)))
    assert all(mine == found[0] for mine in found)
