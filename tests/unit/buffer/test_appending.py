"""Appending records to batches, which may grow and be split."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from kprod.buffer.compression import compressor
from kprod.errors import BufferFullError, ProducerClosedError
from kprod.types import TopicPartition
from kprod_ext.batch import ProducerBatch
from kprod_ext.futures import FutureRecordMetadata
from kprod_ext.partition_queue import PartitionQueue
from tests.support.interruption import interruptible, repeat_until_interrupted
from tests.support.pool_waiter import wait_until
from tests.support.tier import one_of
from tests.unit.buffer.accumulating import BATCH, LEADER, VALUE, Accumulating, read

LONG = 20.0


def test_append_raises_when_no_memory_is_free_in_time() -> None:
    rig = Accumulating(batches=1)
    rig.append(0)
    with pytest.raises(
        BufferFullError, match=r"no room for 1000 bytes within 0\.01 s: buffer_memory"
    ):
        rig.append(1, timeout=0.01)
    assert len(rig.accumulator.incomplete) == 1
    assert rig.used == BATCH
    assert rig.pool.waiting == 0


def test_an_append_without_memory_makes_lingering_batches_ready() -> None:
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


def test_a_record_joins_a_batch_opened_while_it_waited_for_memory() -> None:
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


def test_a_value_changed_during_a_wait_for_memory_is_appended_as_given() -> None:
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


def test_every_record_accepted_before_close_is_queued_after_it() -> None:
    rig = Accumulating(batches=2000)
    taken: list[FutureRecordMetadata] = []
    started = threading.Semaphore(0)

    def append_until_closed(thread: int) -> None:
        mine = []
        with suppress(ProducerClosedError):
            for number in range(100_000):  # a thread may reach this before the others start
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


def test_all_threads_get_the_same_queue_of_a_partition() -> None:
    rig = Accumulating()
    start = threading.Barrier(4)

    def want(_: int) -> list[PartitionQueue]:
        start.wait()
        queue_of = rig.accumulator.partition_queue
        return [queue_of(TopicPartition("t", number)) for number in range(200)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(want, range(4)))
    assert all(mine == found[0] for mine in found)


@pytest.mark.parametrize("size", one_of(10, BATCH // 2, BATCH))
def test_an_interrupted_append_leaves_memory_and_queue_consistent(size: int) -> None:
    value = b"%04d" % size * (size // 4)
    with interruptible():
        for number in range(600):
            rig = Accumulating(batches=1000)
            repeat_until_interrupted(partial(rig.append, value=value), 0.0002 + number * 2e-7)
            check(rig, value)


def check(rig: Accumulating, value: bytes) -> None:
    """Every queued batch is complete, known to flush, and nothing else occupies memory."""
    waiting = set(rig.accumulator.incomplete.copy())
    rig.accumulator.flushes.add(None)
    seen: list[ProducerBatch] = []
    while batches := rig.drain():
        seen += batches
    assert set(seen) == waiting, "flush would miss a batch, or wait for ever"
    for batch in seen:
        assert {record.value for record in read(batch).records()} == {value}
        batch.release()
    assert rig.used == 0


# Batches that grow until the sender takes them (KIP-782) ------------------------------------------


MOST = 5 * BATCH - 1
"""Room for ten records of ``VALUE``."""


def growing(batches: int = 100) -> Accumulating:
    """Batches for node 1, which leads all partitions, may grow to the maximum."""
    rig = Accumulating(batches, batch_max_size=MOST)
    rig.broker(1).window.size = MOST
    drain_each_queue(rig)
    return rig


def drain_each_queue(rig: Accumulating) -> None:
    """Let the sender see every queue by draining a batch of it."""
    for partition in range(3):
        rig.append(partition, b"")
        rig.clock.advance(10)
        for batch in rig.drain():
            batch.partition.take_out(batch)
            batch.release()


def sizes(rig: Accumulating) -> dict[int, list[int]]:
    """Record counts of the batches of each partition."""
    found: dict[int, list[int]] = {}
    for batch in rig.take_all():
        found.setdefault(batch.tp.partition, []).append(batch.record_count)
    return found


def test_batches_grow_to_the_window_of_their_leader() -> None:
    rig = Accumulating(100, batch_max_size=MOST)
    leaders = (1, 2, 1)

    def grown() -> dict[int, list[int]]:
        for _ in range(12):
            for partition in (0, 1):
                rig.append(partition)
        rig.check(leaders)
        return sizes(rig)

    assert grown() == {0: [2] * 6, 1: [2] * 6}, "no window is known"
    rig.broker(1).window.size = 2 * BATCH
    grown()  # the sender sees the queues for the first time
    assert grown() == {0: [4] * 3, 1: [2] * 6}
    rig.broker(1).window.size = 0
    grown()
    assert grown() == {0: [2] * 6, 1: [2] * 6}, "the window has shrunk"


def test_only_the_record_that_fills_a_batch_wakes_the_sender() -> None:
    rig = growing()
    appended = [rig.append() for _ in range(8)]
    assert [one.wake_sender for one in appended] == [False, True] + [False] * 6
    assert [one.batch_ready for one in appended] == [one.wake_sender for one in appended]
    assert rig.drain()[0].record_count == 8


def test_a_batch_with_an_oversized_record_is_ready_and_takes_more_records() -> None:
    rig = growing()
    appended = rig.append(value=bytes(2 * BATCH))
    assert appended.wake_sender
    assert rig.ready() == {1: [0]}
    rig.append(value=bytes(2 * BATCH))
    rig.append(value=bytes(2 * BATCH))  # would exceed the maximum
    assert sizes(rig) == {0: [2, 1]}


def test_batches_stay_below_a_size_that_the_broker_refused() -> None:
    rig = growing()
    for _ in range(10):
        rig.append()
    (batch,) = rig.drain()
    batch.attempt(rig.clock.now, LEADER)
    for half in rig.split(batch):
        rig.drain_each(1)
        half.release()
    for _ in range(12):
        rig.append()
        rig.append(partition=1)
    assert sizes(rig) == {0: [4, 4, 4], 1: [10, 2]}


# Batches that are split after the broker refused their size ---------------------------------------


def sent(rig: Accumulating, records: int) -> ProducerBatch:
    """A drained batch of small numbered records."""
    for number in range(records):
        rig.append(value=b"%d" % number)
    rig.accumulator.flushes.add(None)
    (batch,) = rig.drain()
    rig.accumulator.flushes.discard(None)
    batch.attempt(rig.clock.now, LEADER)
    return batch


def values(batch: ProducerBatch) -> list[bytes | None]:
    return [record.value for record in read(batch).records()]


@pytest.fixture(params=["none", "gzip", "snappy", "lz4", "zstd"])
def rig(request: pytest.FixtureRequest) -> Accumulating:
    compress = compressor(request.param, None)
    return Accumulating(batches=100, compression=request.param, compress=compress)


def test_halves_of_a_split_batch_inherit_its_flags(rig: Accumulating) -> None:
    """See ``Partition.acknowledged`` for overtaken batches."""
    batch = sent(rig, 4)
    batch.maybe_written = batch.overtaken = True
    for half in rig.split(batch):
        assert half.maybe_written
        assert half.overtaken


def test_a_batch_that_was_too_large_resets_the_compression_estimate() -> None:
    """As in Kafka: batches are filled by their uncompressed size again."""
    rig = Accumulating(batches=100, compression="gzip", compress=compressor("gzip", None))
    for _ in range(100):  # well compressible: batches take more and more
        rig.append(value=bytes(BATCH // 4))
        rig.drain()
    fewer = records_of_a_batch(rig)
    rig.split(sent(rig, 2))
    assert records_of_a_batch(rig) < fewer


def records_of_a_batch(rig: Accumulating) -> int:
    """Records that go into one batch."""
    count = 0
    while not rig.append(value=bytes(BATCH // 40)).wake_sender or not count:
        count += 1
    rig.accumulator.flushes.add(None)
    while rig.drain():
        pass
    rig.accumulator.flushes.discard(None)
    return count


@pytest.mark.parametrize("count", [2, 3, 5, 9, 100])
def test_a_batch_is_split_into_the_requested_number_of_parts(rig: Accumulating, count: int) -> None:
    futures = [rig.append(value=b"%d" % number).future for number in range(9)]
    rig.accumulator.flushes.add(None)
    rig.number_from(0x7FFF_FFFE)
    (batch,) = rig.drain()
    parts = rig.cut(batch, count)
    assert len(parts) == min(count, 9)
    counts = [part.record_count for part in parts]
    assert max(counts) - min(counts) <= 1
    found: list[bytes | None] = []
    for part in parts:
        assert rig.drain_each(1) == [part]
        number = (0x7FFF_FFFE + len(found)) & 0x7FFF_FFFF
        sealed = read(part)
        state = (sealed.producer_id, sealed.producer_epoch, sealed.base_sequence)
        assert (*state, part.base_sequence) == (7, 1, number, number)
        part.delivery.succeed(1000 + len(found), -1)
        found += values(part)
    assert found == [b"%d" % number for number in range(9)]
    assert [future.get(0).offset for future in futures] == list(range(1000, 1009))


def test_a_split_of_a_batch_with_an_oversized_record_gives_fewer_parts() -> None:
    rig = Accumulating(batches=100, batch_size=50_000)
    for size in (10, 10_000, 10, 10):
        rig.append(value=bytes(size))
    rig.accumulator.flushes.add(None)
    (batch,) = rig.drain()
    parts = rig.cut(batch, 4)
    assert [part.record_count for part in parts] == [2, 2]


@pytest.mark.parametrize("size", [63, 64, 8191, 8192])
def test_a_split_keeps_records_of_every_shape(size: int) -> None:
    rig = Accumulating(batches=100, batch_size=50_000)
    headers = (("größe", bytes(size)), ("null", None), ("empty", b""), ("", b"no name"))
    shapes = [
        (b"k", bytes(size), headers),
        (None, None, ()),
        (b"", b"", ()),
        (bytes(size), None, ()),
    ]
    timestamps = [10**12, 0, 2**62, 10**12]
    tp = rig.append(value=b"first").future.topic_partition
    for timestamp, (key, value, their_headers) in zip(timestamps, shapes, strict=True):
        rig.accumulator.append(tp, timestamp, key, value, their_headers, 0)
    rig.accumulator.flushes.add(None)
    (batch,) = rig.drain()
    expected = [(r.timestamp, r.key, r.value, r.headers) for r in read(batch).records()]
    rig.split(batch)
    found = [record for half in rig.drain_each(2) for record in read(half).records()]
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == expected
