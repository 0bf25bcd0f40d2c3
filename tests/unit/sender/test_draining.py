"""What one request takes: one batch per partition, fairly, within the limit, frozen."""

from __future__ import annotations

import itertools
import random
import zlib
from collections import Counter
from pathlib import Path

import pytest

from kprod.errors import KprodError, ProducerClosedError
from kprod.types import ProducerId
from kprod_ext import PartitionQueue
from kprod_ext.batch import ProducerBatch
from tests.unit.buffer.accumulating import Accumulating, read

ROOT = Path(__file__).parents[3]


@pytest.fixture
def rig() -> Accumulating:
    return Accumulating(batches=100)


def partitions(batches: list[ProducerBatch]) -> list[int]:
    return [batch.tp.partition for batch in batches]


def fill(rig: Accumulating, *numbers: int) -> None:
    """A batch for each of these partitions that needs no linger."""
    for number in numbers:
        rig.append(number, bytes(2000))


# Which --------------------------------------------------------------------------------------------


def test_one_batch_of_each_partition_is_taken(rig: Accumulating) -> None:
    fill(rig, 0, 0, 1, 2, 2)
    assert sorted(partitions(rig.drain())) == [0, 1, 2]
    assert sorted(partitions(rig.drain())) == [0, 2]
    assert rig.drain() == []


def test_batches_leave_in_the_order_they_were_filled(rig: Accumulating) -> None:
    for number in range(6):
        rig.append(0, b"%d" % number + bytes(500))
    taken = [batch for _ in range(6) for batch in rig.drain()]
    rig.clock.advance(10)
    taken += rig.drain()
    values = [record.value or b"" for batch in taken for record in read(batch).records()]
    assert [value[:1] for value in values] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_request_is_not_filled_beyond_its_limit(rig: Accumulating) -> None:
    fill(rig, 0, 1, 2)
    first = rig.drain(max_bytes=5000)
    assert len(first) == 2
    assert sum(batch.size for batch in first) <= 5000
    assert len(rig.drain(max_bytes=5000)) == 1


class Growing(PartitionQueue):
    """A queue that a caller appends to when its head was found to fit, before that is closed."""

    rig: Accumulating
    growing: list[int]

    def close_head(self) -> None:
        if self.tp.partition in self.growing:
            self.growing.remove(self.tp.partition)
            self.rig.append(self.tp.partition, bytes(300))
        super().close_head()


def test_a_batch_that_grew_until_it_was_closed_goes_with_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    rig.accumulator.begin_flush()
    for _ in range(200):
        rig.append(0, bytes(900))
        (others,) = rig.drain()
        others.release()
    noise = random.Random(5)
    for partition in (1, 2):
        rig.append(partition, noise.randbytes(900))
    requests = [rig.drain(max_bytes=1500) for _ in range(3)]
    assert [partitions(request) for request in requests] == [[1], [2], []]


def test_a_batch_larger_than_the_limit_goes_alone(rig: Accumulating) -> None:
    fill(rig, 0, 1)
    assert len(rig.drain(max_bytes=10)) == 1
    assert len(rig.drain(max_bytes=10)) == 1


def test_no_partition_is_passed_over_for_ever(rig: Accumulating) -> None:
    fill(rig, *range(3), *range(3))
    served: Counter[int] = Counter()
    for _ in range(30):
        (batch,) = rig.drain(max_bytes=10)
        served[batch.tp.partition] += 1
        batch.release()
        fill(rig, batch.tp.partition)
    assert sorted(served) == [0, 1, 2]
    assert min(served.values()) >= 8


def test_a_partition_that_must_wait_does_not_hold_up_the_others(rig: Accumulating) -> None:
    fill(rig, 0, 1, 2)
    rig.gate.shut.add(0)
    assert sorted(partitions(rig.drain())) == [1, 2]
    rig.open(0)
    assert partitions(rig.drain()) == [0]


def test_a_partition_that_must_wait_is_not_asked_for_until_something_changed(
    rig: Accumulating,
) -> None:
    fill(rig, 0)
    rig.gate.shut.add(0)
    assert rig.drain() == []
    fill(rig, 0)
    assert rig.ready() == {}
    assert rig.next_check() == float("inf")
    rig.open(0)
    rig.open(1)
    assert partitions(rig.drain()) == [0]


# How ----------------------------------------------------------------------------------------------


def test_a_batch_is_numbered_before_its_bytes_are_made(rig: Accumulating) -> None:
    fill(rig, 0)
    rig.number_from(40)
    (batch,) = rig.drain()
    found = read(batch)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 1, 40)


# Back in the queue --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_batches_that_come_back_stand_in_the_order_they_left(
    rig: Accumulating, order: tuple[int, ...]
) -> None:
    fill(rig, 0, 0, 0, 0)
    taken = [rig.drain()[0] for _ in range(3)]
    for index in order:
        rig.attempt(taken[index])
    rig.clock.advance(10)
    again = rig.drain_each(4)
    assert again[:3] == taken
    assert again[3].attempts == 0


def test_a_batch_that_gets_no_new_number_is_queued_no_more(rig: Accumulating) -> None:
    fill(rig, 0, 0)
    first = rig.drain()[0]
    rig.attempt(first)
    first.maybe_written = True
    rig.partitions.identity.producer = ProducerId(7, 1)
    first.partition.want_new_epoch()
    assert rig.partitions.renumber(rig.clock.now) == [first]
    assert first not in rig.take_all()


# Given up -----------------------------------------------------------------------------------------


def test_late_batches_are_taken_out_oldest_first() -> None:
    rig = Accumulating(batches=100, delivery_timeout=30)
    fill(rig, 0, 1)
    rig.ready()
    rig.clock.advance(5)
    fill(rig, 0, 2)
    rig.ready()
    assert rig.next_check() == 25
    rig.clock.advance(25)
    assert rig.next_check() == 5
    assert partitions(rig.late) == [0, 1]
    rig.clock.advance(5)
    assert rig.next_check() == float("inf")
    assert partitions(rig.late[:2]) == [0, 1]
    assert sorted(partitions(rig.late[2:])) == [0, 2]
    assert rig.ready() == {}


def test_a_batch_on_the_wire_is_late_once() -> None:
    rig = Accumulating(batches=100, delivery_timeout=30)
    fill(rig, 0)
    (batch,) = rig.drain()
    batch.partition.sent(batch, rig.clock.now)
    rig.clock.advance(30)
    rig.look()
    assert rig.late == [batch]
    batch.delivery.fail(KprodError("late"))
    rig.clock.advance(30)
    assert rig.next_check() == float("inf")
    assert rig.late == [batch]


def test_a_batch_given_up_while_it_was_open_gets_no_more_records() -> None:
    rig = Accumulating(delivery_timeout=5)
    rig.append(0, b"open")
    rig.look()
    rig.clock.advance(5)
    rig.look()
    (batch,) = rig.late
    rig.append(0, b"next")
    assert batch.record_count == 1


def test_all_memory_comes_back_whatever_way_a_batch_went(rig: Accumulating) -> None:
    fill(rig, 0, 0, 0, 1)
    rig.append(2, b"open")
    sent = rig.drain()
    retried, other = sent
    rig.attempt(retried)
    batches = [other]
    rig.accumulator.close()
    with pytest.raises(ProducerClosedError):
        rig.append(0)
    batches += rig.take_all()
    for batch in batches:
        batch.release()
    assert rig.used == 0
