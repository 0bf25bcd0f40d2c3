"""Records go into the open batch of their partition, or wait for memory, or are refused whole."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from kprod.errors import BufferFullError, KprodError, ProducerClosedError
from kprod.types import TopicPartition
from kprod_ext.futures import FutureRecordMetadata
from tests.support.pool_waiter import wait_until
from tests.unit.buffer.accumulating import BATCH, VALUE, Accumulating, read

LONG = 20.0


def test_every_partition_has_a_batch_of_its_own() -> None:
    rig = Accumulating()
    for partition in range(3):
        rig.append(partition)
    rig.append(0, topic="other")
    assert rig.used == 4 * BATCH


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    rig = Accumulating()
    rig.append(value=bytes(3 * BATCH))
    rig.append()
    assert rig.used > 4 * BATCH
    large, small = rig.take_all()
    assert (large.record_count, small.record_count) == (1, 1)


def test_every_record_travels_alone_when_batches_have_no_size() -> None:
    rig = Accumulating(batch_size=1)
    for _ in range(3):
        appended = rig.append(value=b"")
        assert appended.batch_ready
        assert appended.wake_sender
    assert [batch.record_count for batch in rig.take_all()] == [1, 1, 1]


def test_futures_know_their_place_and_their_sizes() -> None:
    rig = Accumulating()
    tp = TopicPartition("t", 0)
    first = rig.accumulator.append(tp, 1000, b"key", b"value", (("h", b"12"),), 0).future
    second = rig.accumulator.append(tp, 1001, None, None, (), 0).future
    (batch,) = rig.take_all()
    batch.delivery.succeed(100, -1)
    assert first.get(0)[3:] == (100, 1000, None, 3, 5, 3)
    assert second.get(0)[3:] == (101, 1001, None, -1, -1, -1)


# Refused: nothing is queued, and no memory is lost ------------------------------------------------


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


def test_a_full_memory_does_not_matter_while_the_open_batch_has_room() -> None:
    rig = Accumulating(batches=1)
    rig.append()
    assert rig.append().future is not None


def test_a_closed_accumulator_takes_nothing() -> None:
    rig = Accumulating()
    rig.append()
    rig.accumulator.close()
    for partition in (0, 1):
        with pytest.raises(ProducerClosedError):
            rig.append(partition)
    assert rig.used == BATCH


# Threads ------------------------------------------------------------------------------------------


class Appending(threading.Thread):
    """Appends one record, waiting for memory if it must."""

    def __init__(self, rig: Accumulating, partition: int) -> None:
        super().__init__()
        self.future: FutureRecordMetadata | None = None
        self.error: KprodError | None = None
        self._rig = rig
        self._partition = partition
        self.start()

    def run(self) -> None:
        try:
            self.future = self._rig.append(self._partition, b"waited", timeout=LONG).future
        except KprodError as error:
            self.error = error


def test_a_record_that_waits_goes_on_when_memory_comes_back() -> None:
    rig = Accumulating(batches=1)
    rig.append(0)
    waiting = Appending(rig, 1)
    wait_until(lambda: rig.pool.waiting == 1)
    (batch,) = rig.take_all()
    batch.release()
    waiting.join(LONG)
    assert waiting.future is not None
    assert rig.used == BATCH


def test_who_finds_a_batch_opened_meanwhile_joins_it_and_returns_the_memory() -> None:
    rig = Accumulating(batches=2)
    rig.append(0)
    rig.append(1)
    both = [Appending(rig, 2), Appending(rig, 2)]
    wait_until(lambda: rig.pool.waiting == 2)
    for batch in rig.take_all():
        batch.release()
    for waiting in both:
        waiting.join(LONG)
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
    waiting = Appending(rig, 1)
    wait_until(lambda: rig.pool.waiting == 1)
    rig.accumulator.close()
    waiting.join(LONG)
    assert isinstance(waiting.error, ProducerClosedError)
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
