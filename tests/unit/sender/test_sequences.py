"""Sequence numbers have no gaps, order is kept, and nothing doubtful is sent under a new epoch."""

from __future__ import annotations

import pytest

from kprod.sender.partition import PROOF_LASTS
from kprod.types import ProducerId
from tests.unit.sender.sequencing import LEADER, Line, place

LAST = 2**31 - 1


# Numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sequence", "records", "after"),
    [(0, 1, 1), (10, 5, 15), (LAST - 1, 1, LAST), (LAST, 1, 0), (LAST - 1, 5, 3), (LAST, 2, 1)],
)
def test_numbers_go_round_after_the_largest(sequence: int, records: int, after: int) -> None:
    line = Line()
    line.prove()
    partition = line.partition()
    partition.next_sequence = sequence
    line.acknowledge(line.send(line.batch(records=records)))
    assert (partition.next_sequence, partition.anchor_sequence) == (after, after)


# How many at once ---------------------------------------------------------------------------------


def admitted(line: Line) -> int:
    """How many further batches may leave now."""
    count = 0
    while line.admits(batch := line.batch()):
        line.send(batch)
        count += 1
    return count


def test_a_new_leader_gets_nothing_until_the_old_one_owes_nothing() -> None:
    line = Line()
    line.prove()
    at_old = [line.send(), line.send()]
    line.leader = LEADER._replace(leader_id=2, leader_epoch=6)
    assert admitted(line) == 0
    line.acknowledge(*at_old)
    assert admitted(line) == 1


def test_proof_lasts_a_minute_from_its_attempt_however_long_a_batch_has_waited() -> None:
    line = Line()
    line.prove()
    old = line.batch()
    line.now = PROOF_LASTS - 0.001
    line.send(old)
    assert line.admits(line.batch())
    line.now = PROOF_LASTS
    assert not line.admits(line.batch()), (
        "batches are older than the proof, which ages all the same"
    )
    line.acknowledge(old)
    assert admitted(line) == 5


# Retries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
def test_retries_leave_one_by_one_in_the_order_of_first_leaving(idempotent: bool) -> None:
    line = Line(idempotent=idempotent)
    line.prove()
    first, second, third = line.send(), line.send(), line.send()
    line.refuse(first)
    assert not line.admits(first), "later ones are still on the wire"
    line.refuse(second, third)
    assert [line.admits(batch) for batch in (first, second, third)] == [True, False, False]
    line.send(first)
    assert not line.admits(second)
    line.acknowledge(first)
    assert [line.admits(batch) for batch in (second, third)] == [True, False]


def test_nothing_new_leaves_beside_the_repetition_of_what_may_be_stored() -> None:
    """The broker knows the repetition of its last five batches: four behind it may be stored."""
    line = Line()
    line.prove()
    first, *others = [line.send() for _ in range(5)]
    line.refuse(first, maybe=True)
    line.acknowledge(*others)
    line.send(first)
    assert not line.admits(line.batch())
    line.acknowledge(first)
    assert line.admits(line.batch())


# A new epoch --------------------------------------------------------------------------------------


def test_after_the_last_epoch_a_new_producer_id_is_needed() -> None:
    line = Line(producer=ProducerId(7, 2**15 - 1))
    batch = line.send()
    line.refuse(batch)
    batch.partition.want_new_epoch()
    line.renumber()
    assert line.partitions.needs_producer_id
    assert not line.admits(batch)
    line.partitions.identity.producer = ProducerId(8, 0)
    line.renumber()
    assert place(batch) == (8, 0, 0)
    assert line.admits(batch)


def test_what_is_under_way_under_the_old_id_is_retried_under_it() -> None:
    line = Line(producer=ProducerId(7, 2**15 - 1))
    other, refused = line.send(partition=1), line.send(partition=0)
    line.refuse(refused, other)
    refused.partition.want_new_epoch()
    line.renumber()
    line.partitions.identity.producer = ProducerId(8, 0)
    line.renumber()
    line.send(other)
    assert place(other) == (7, 2**15 - 1, 0)


# What later batches prove of earlier ones that may be stored -------------------------------------


def test_a_batch_that_was_overtaken_is_not_provable() -> None:
    """A log that began with the second batch has a gap where the first would be."""
    line = Line()
    line.prove()
    first, second, _ = (line.send() for _ in range(3))
    line.refuse(first, maybe=True)
    line.acknowledge(second)
    assert not first.partition.is_provable(first)


def test_room_is_counted_across_the_largest_number() -> None:
    line = Line()
    line.send(first := line.batch())
    first.base_sequence = LAST
    line.store(first, 10)
    later = line.batch()
    later.base_sequence = 4  # 0 to 3 were sent in between
    assert first.partition.leaves_room(later, 15)
    assert not first.partition.leaves_room(later, 14)
