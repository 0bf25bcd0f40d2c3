"""Sequence numbers have no gaps, order is kept, and nothing doubtful is sent under a new epoch."""

from __future__ import annotations

import pytest

from kprod.cluster.snapshot import Leadership
from kprod.records.record_batch import read_batches
from kprod.sender.partition import PROOF_LASTS, Place
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


def test_batches_are_numbered_from_zero_by_their_records() -> None:
    line = Line()
    line.prove()
    batches = [line.send(line.batch(records=n)) for n in (3, 1, 2)]
    assert [place(batch) for batch in batches] == [(7, 0, 1), (7, 0, 4), (7, 0, 5)]


def test_every_partition_counts_for_itself() -> None:
    line = Line()
    assert [place(line.send(partition=n))[2] for n in range(3)] == [0, 0, 0]


def test_a_retry_keeps_its_number() -> None:
    line = Line()
    batch = line.send(line.batch(records=4))
    line.refuse(batch)
    line.send(batch)
    assert place(batch) == (7, 0, 0)
    line.acknowledge(batch)
    assert place(line.send())[2] == 4


def test_without_idempotence_nothing_is_numbered() -> None:
    line = Line(idempotent=False)
    assert not line.send().has_sequence


def test_nothing_leaves_before_there_is_a_producer_id() -> None:
    line = Line()
    line.partitions.identity.producer = None
    assert line.partitions.needs_producer_id
    assert not line.admits(line.batch())
    assert not Line(idempotent=False).partitions.needs_producer_id


# How many at once ---------------------------------------------------------------------------------


def admitted(line: Line) -> int:
    """How many further batches may leave now."""
    count = 0
    while line.admits(batch := line.batch()):
        line.send(batch)
        count += 1
    return count


def test_one_batch_is_sent_to_a_leader_that_has_not_proved_itself() -> None:
    assert admitted(Line(max_in_flight=5)) == 1


def test_as_many_as_allowed_are_sent_to_one_that_has() -> None:
    line = Line(max_in_flight=5)
    line.prove()
    assert admitted(line) == 5


@pytest.mark.parametrize(
    "leader",
    [
        pytest.param(LEADER._replace(leader_id=2), id="another broker"),
        pytest.param(LEADER._replace(leader_epoch=6), id="elected again"),
    ],
)
def test_a_new_leader_must_prove_itself(leader: Leadership) -> None:
    line = Line()
    line.prove()
    line.leader = leader
    assert admitted(line) == 1


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


def test_an_answer_of_the_old_leader_does_not_prove_the_new_one() -> None:
    line = Line()
    batch = line.send()
    line.leader = LEADER._replace(leader_id=2, leader_epoch=6)
    line.acknowledge(batch)
    assert admitted(line) == 1


def test_without_idempotence_no_proof_is_needed() -> None:
    assert admitted(Line(idempotent=False, max_in_flight=3)) == 3


def test_a_limit_of_one_is_kept() -> None:
    line = Line(idempotent=False, max_in_flight=1)
    batch = line.send()
    assert not line.admits(line.batch())
    line.acknowledge(batch)
    assert line.admits(line.batch())


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


def test_a_retry_may_go_when_the_one_before_it_was_given_up() -> None:
    line = Line()
    line.prove()
    first, second = line.send(), line.send()
    line.give_up(first)
    line.refuse(second)
    assert second.partition.is_oldest(second)
    assert line.admits(second)


def test_the_oldest_without_an_outcome_is_known() -> None:
    line = Line()
    line.prove()
    first, second = line.send(), line.send()
    assert (first.partition.is_oldest(first), second.partition.is_oldest(second)) == (True, False)
    line.acknowledge(second)
    assert first.partition.is_oldest(first)
    line.acknowledge(first)
    assert not second.partition.is_oldest(second)


def test_one_partition_does_not_hold_up_another() -> None:
    line = Line()
    line.refuse(line.send(partition=0))
    assert line.admits(line.batch(1))


# A new epoch --------------------------------------------------------------------------------------


def test_a_partition_that_was_refused_starts_anew_under_the_next_epoch() -> None:
    line = Line()
    line.prove()
    first, second = line.send(line.batch(records=2)), line.send(line.batch(records=3))
    line.refuse(first, second)
    first.partition.want_new_epoch()
    assert not line.admits(first)
    assert line.renumber() == []
    assert [place(first), place(second)] == [(7, 1, 0), (7, 1, 2)]
    line.send(first)
    assert not line.admits(line.batch()), "the new epoch must be proved first"
    line.acknowledge(first)
    line.acknowledge(line.send(second))
    assert place(line.send()) == (7, 1, 5)


def test_the_bytes_of_a_renumbered_batch_say_so() -> None:
    line = Line()
    batch = line.send(line.batch(records=2))
    line.refuse(batch)
    batch.partition.want_new_epoch()
    line.renumber()
    (found,) = read_batches(batch.build())
    assert found.crc_ok
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 1, 0)


def test_nothing_is_renumbered_while_something_is_on_the_wire() -> None:
    line = Line()
    line.prove()
    first, second = line.send(), line.send()
    line.refuse(first)
    first.partition.want_new_epoch()
    assert line.renumber() == []
    assert place(first) == (7, 0, 1)
    assert not line.admits(line.batch())
    line.acknowledge(second)
    line.renumber()
    assert place(first) == (7, 1, 0)


def test_what_may_be_stored_is_given_up_instead() -> None:
    line = Line()
    line.prove()
    first, doubtful, third = line.send(), line.send(), line.send()
    line.refuse(first, third)
    line.refuse(doubtful, maybe=True)
    first.partition.want_new_epoch()
    assert line.renumber() == [doubtful]
    assert place(doubtful) == (7, 0, 2)
    assert [place(first), place(third)] == [(7, 1, 0), (7, 1, 1)]


def test_other_partitions_keep_their_epoch_until_they_owe_nothing() -> None:
    line = Line()
    line.prove(1)
    busy = line.send(partition=1)
    refused = line.send(partition=0)
    line.refuse(refused)
    refused.partition.want_new_epoch()
    line.renumber()
    assert not line.admits(line.batch(1)), "two epochs at once in one partition"
    line.refuse(busy)
    line.send(busy)
    assert place(busy) == (7, 0, 1)
    line.acknowledge(busy)
    assert place(line.send(partition=1)) == (7, 1, 0)


def test_an_idle_partition_takes_the_new_epoch_from_zero() -> None:
    line = Line()
    line.prove(1)
    refused = line.send(partition=0)
    line.refuse(refused)
    refused.partition.want_new_epoch()
    line.renumber()
    assert place(line.send(partition=1)) == (7, 1, 0)
    assert not line.admits(line.batch(1)), "the new epoch must be proved first"


def test_partitions_refused_together_share_one_new_epoch() -> None:
    line = Line()
    refused = [line.send(partition=n) for n in range(3)]
    line.refuse(*refused)
    for batch in refused:
        batch.partition.want_new_epoch()
    line.renumber()
    assert [place(batch) for batch in refused] == [(7, 1, 0)] * 3


def test_a_partition_refused_again_goes_on_to_the_next_epoch() -> None:
    line = Line()
    batch = line.send()
    for epoch in (1, 2, 3):
        line.refuse(batch)
        batch.partition.want_new_epoch()
        line.renumber()
        assert place(batch) == (7, epoch, 0)
        line.send(batch)


def test_after_the_last_epoch_a_new_producer_id_is_needed() -> None:
    line = Line(producer=ProducerId(7, 2**15 - 1))
    batch = line.send()
    line.refuse(batch)
    batch.partition.want_new_epoch()
    assert line.renumber() == []
    assert line.partitions.needs_producer_id
    assert not line.admits(batch)
    line.partitions.identity.producer = ProducerId(8, 0)
    assert line.renumber() == []
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


# Cut in two ---------------------------------------------------------------------------------------


def test_the_halves_of_a_batch_take_its_place() -> None:
    line = Line()
    line.prove()
    whole, later = line.send(line.batch(records=2)), line.send()
    line.refuse(whole, later)
    order = [*whole.partition.split(whole, 2, line.now), later]
    for batch in order:
        assert [line.admits(other) for other in order] == [other is batch for other in order]
        line.send(batch)
        line.acknowledge(batch)


# What lets a partition go on that waits -----------------------------------------------------------


def test_a_partition_that_waits_goes_on_with_the_next_answer() -> None:
    line = Line()
    first, second = line.send(), line.batch()
    assert not line.admits(second)
    line.partition().move(Place.WAITING)
    line.acknowledge(first)
    assert line.partition().place is Place.READY
    assert line.admits(second)


def test_a_partition_that_waits_goes_on_with_its_new_epoch() -> None:
    line = Line()
    line.prove()
    refused = line.send()
    line.refuse(refused)
    refused.partition.want_new_epoch()
    assert not line.admits(refused)
    line.partition().move(Place.WAITING)
    assert line.renumber() == []
    assert line.partition().place is Place.READY
    assert line.admits(refused)
