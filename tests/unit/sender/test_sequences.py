"""An idempotent producer's id and numbers: no gaps, in order, and nothing doubtful sent anew."""

from __future__ import annotations

import pytest

from kprod.errors import BrokerError, DeliveryTimeoutError
from kprod.sender.partition import PROOF_LASTS
from kprod.types import ProducerId, TopicPartition
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import Answer, ScriptedBroker, telling
from tests.support.sender_rig import rig_of
from tests.unit.sender.sequencing import LEADER, Line, place

# The id, from whoever will give one ---------------------------------------------------------------


TP = TopicPartition("t", 0)


def identity(producer_id: int = 9, epoch: int = 3, error: int = 0) -> Answer:
    """An answer to InitProducerId."""
    return telling(error_code=error, producer_id=producer_id, producer_epoch=epoch)


def test_batches_carry_the_id_that_was_given(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, identity(9, 3))
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue().succeeded)
    (batch,) = broker.cluster.log[TP]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, 0)


@pytest.mark.parametrize("code", [7, 14, 15, 16, 41, 51, -1, 42, 47, 60])
def test_a_passing_refusal_is_followed_by_another_question(
    broker: ScriptedBroker, code: int
) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, *[identity(-1, -1, code)] * 3)
    rig = rig_of(broker.cluster)
    started = rig.clock.now
    assert rig.run(rig.queue().succeeded)
    assert broker.count(ApiKey.INIT_PRODUCER_ID) == 4
    assert 0.5 < rig.clock.now - started < 1, "100, 200 and 400 ms, a fifth more or less"


def test_the_reason_why_there_is_no_id_is_told_once_and_with_the_record(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, *[identity(-1, -1, 42)] * 200)
    rig = rig_of(broker.cluster, delivery_timeout_ms=40_000)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=41)
    error = future.exception
    assert isinstance(error, DeliveryTimeoutError)
    assert "INVALID_REQUEST (42): asking for a producer id" in str(error)
    told = [r for r in caplog.records if r.name == "kprod.sender.connection_log"]
    assert len([r for r in told if "asked again: INVALID_REQUEST" in r.getMessage()]) == 1


@pytest.mark.parametrize("code", [29, 31, 53, 90])
def test_a_refusal_for_good_fails_what_is_queued_and_what_comes(
    broker: ScriptedBroker, code: int
) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, identity(-1, -1, code))
    rig = rig_of(broker.cluster)
    for _ in range(2):
        future = rig.queue()
        assert rig.run(future.failed, seconds=5)
        error = future.exception
        assert isinstance(error, BrokerError)
        assert error.code == code
        assert "enable_idempotence=False" in "".join(error.__notes__)
    assert broker.count(ApiKey.INIT_PRODUCER_ID) == 1
    assert rig.sender.accumulator.pool.available == rig.sender.accumulator.pool.total


@pytest.mark.parametrize("garbage", [(-1, -1), (-1, 0), (7, -1), (-5, 3)])
def test_an_id_that_cannot_be_is_not_used(broker: ScriptedBroker, garbage: tuple[int, int]) -> None:
    broker.next(ApiKey.INIT_PRODUCER_ID, identity(*garbage))
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert future.succeeded()
    assert broker.cluster.log[TP][0].producer_id > 4000


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
