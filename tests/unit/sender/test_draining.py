"""Batches of a request: one per partition, fairly, within the size limit, closed."""

from __future__ import annotations

import random
import threading
import zlib
from collections import Counter

import pytest

from kprod.errors import BufferFullError
from kprod.sender.partition import place_in_order
from kprod_ext import PartitionQueue
from kprod_ext.batch import ProducerBatch
from tests.support.pool_waiter import wait_until
from tests.unit.buffer.accumulating import LEADER, Accumulating


@pytest.fixture
def rig() -> Accumulating:
    return Accumulating(batches=100)


def partitions(batches: list[ProducerBatch]) -> list[int]:
    return [batch.tp.partition for batch in batches]


def fill(rig: Accumulating, *numbers: int) -> None:
    """Append to each of these partitions a batch that is ready at once."""
    for number in numbers:
        rig.append(number, bytes(2000))


def test_batches_are_ordered_by_when_they_were_drained(rig: Accumulating) -> None:
    """Even if the clock of the thread that opened the second one was behind."""
    fill(rig, 0)
    rig.clock.now -= 1.0
    fill(rig, 0)
    taken = [*rig.drain(), *rig.drain()]
    assert sorted(taken, key=place_in_order) == taken


class Growing(PartitionQueue):
    """A queue that gets a record between the size check of its head and the closing of that."""

    rig: Accumulating
    growing: list[int]

    def close_head(self) -> None:
        if self.tp.partition in self.growing:
            self.growing.remove(self.tp.partition)
            self.rig.append(self.tp.partition, bytes(300))
        super().close_head()


def test_a_batch_that_outgrows_its_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kprod.buffer.accumulator.PartitionQueue", Growing)
    rig = Growing.rig = Accumulating()
    Growing.growing = [1]
    for partition in range(3):
        rig.append(partition, bytes(300))
    rig.clock.advance(10)
    requests = [[(b.tp.partition, b.size) for b in rig.drain(max_bytes=1000)] for _ in range(3)]
    assert [[partition for partition, _ in request] for request in requests] == [[0, 2], [1], []]
    assert all(sum(size for _, size in request) <= 1000 for request in requests)


def test_a_batch_that_compressed_worse_than_others_goes_with_the_next_request() -> None:
    rig = Accumulating(batches=100, compression="gzip", compress=zlib.compress)
    rig.accumulator.flushes.add(None)
    for _ in range(200):
        rig.append(0, bytes(900))
        (others,) = rig.drain()
        others.release()
    noise = random.Random(5)
    for partition in (1, 2):
        rig.append(partition, noise.randbytes(900))
    requests = [rig.drain(max_bytes=1500) for _ in range(3)]
    assert [partitions(request) for request in requests] == [[1], [2], []]


def test_partitions_are_drained_fairly(rig: Accumulating) -> None:
    fill(rig, *range(3), *range(3))
    served: Counter[int] = Counter()
    for _ in range(30):
        (batch,) = rig.drain(max_bytes=10)
        served[batch.tp.partition] += 1
        batch.release()
        fill(rig, batch.tp.partition)
    assert sorted(served) == [0, 1, 2]
    assert min(served.values()) >= 8


def test_an_expired_open_batch_gets_no_more_records() -> None:
    rig = Accumulating(delivery_timeout=5)
    rig.append(0, b"open")
    rig.check()
    (batch,) = rig.accumulator.incomplete
    rig.clock.advance(5)
    rig.check()
    assert batch.delivery.done
    rig.append(0, b"next")
    assert batch.record_count == 1


def test_all_batches_are_ready_while_a_thread_waits_for_memory() -> None:
    rig = Accumulating(batches=1)
    rig.append()

    def wait_for_memory() -> None:
        with pytest.raises(BufferFullError):
            rig.append(1, timeout=0.2)

    waiting = threading.Thread(target=wait_for_memory)
    waiting.start()
    wait_until(lambda: rig.pool.waiting > 0)
    assert rig.ready() == {1: [0]}
    waiting.join(20)
    assert len(rig.wakes) == 1, "the sender might sleep until the linger ends"
    (batch,) = rig.drain()
    batch.release()
    rig.append()
    assert rig.ready() == {}


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (9, 8)])
def test_the_back_off_of_a_batch_grows_with_its_attempts(
    rig: Accumulating, attempts: int, seconds: float
) -> None:
    rig.append(0, bytes(2000))
    (batch,) = rig.drain()
    for _ in range(attempts):
        batch.attempt(rig.clock.now, LEADER)
    batch.partition.put_back(batch, rig.clock.now)
    assert rig.ready() == {}
    assert rig.next_check() == seconds
    rig.clock.advance(seconds)
    assert rig.ready() == {1: [0]}
