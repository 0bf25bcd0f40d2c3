"""How records end: stored, tried again, or failed with what is known of the log."""

from __future__ import annotations

from typing import Any

import pytest

from kprod.errors import (
    DeliveryTimeoutError,
    RecordTooLargeError,
)
from kprod.types import Persisted, TopicPartition
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support.scripted_cluster import (
    Answer,
    Heard,
    ScriptedBroker,
    ScriptedCluster,
    cut,
    refuse,
    silence,
)
from tests.support.sender_rig import SenderRig, error_of, rig_of

TP = TopicPartition("t", 0)


def all_memory_is_free(rig: SenderRig) -> bool:
    pool = rig.sender.accumulator.pool
    return pool.available == pool.total


# Stored -------------------------------------------------------------------------------------------


def test_a_record_is_not_finished_before_it_was_told_of(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster)
    finished: list[bool] = []
    broker.next(ApiKey.PRODUCE, ScriptedBroker.usual, refuse(87))
    for _ in range(2):
        future = rig.queue().add_both(lambda _: finished.append(rig.sender.finished))
        assert rig.run(lambda future=future: future.is_done)  # type: ignore[misc]
    assert finished == [False, False], "a flush that starts now would not wait for the callback"
    assert rig.sender.finished


# Tried again --------------------------------------------------------------------------------------


def test_a_retry_is_the_same_batch_to_the_byte(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, refuse(7), cut, refuse(19))
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue().succeeded)
    bodies = [heard.body for heard in broker.heard if heard.api is ApiKey.PRODUCE]
    sent = {bytes(body.topic_data[0].partition_data[0].records) for body in bodies}
    assert (len(bodies), len(sent)) == (4, 1)


# Failed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [10, 18])
def test_one_record_that_is_too_large_is_refused_with_its_size(
    broker: ScriptedBroker, code: int
) -> None:
    broker.next(ApiKey.PRODUCE, refuse(code))
    rig = rig_of(broker.cluster)
    future = rig.queue(bytes(5000))
    assert rig.run(lambda: future.is_done)
    error = error_of(future)
    assert isinstance(error, RecordTooLargeError)
    assert "max.message.bytes" in str(error)
    assert " 50" in str(error)
    assert error.persisted is Persisted.NO
    assert not future.retriable()


# Out of time --------------------------------------------------------------------------------------


def test_a_record_that_never_left_fails_in_time_and_is_not_stored(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster, delivery_timeout_ms=40_000)
    broker.cluster.topics["t"] = [-1]
    rig.sender.metadata.request_update()
    rig.run(lambda: rig.sender.metadata.snapshot.leader(TP) is None)
    started = rig.clock.now
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=41, most_turns=5000)
    assert 40 <= rig.clock.now - started < 40.1
    error = error_of(future)
    assert isinstance(error, DeliveryTimeoutError)
    assert error.persisted is Persisted.NO
    assert "1 record for t-0" in str(error)
    assert "(40000 ms) of the first: it was still queued after 0 attempts" in str(error)
    assert all_memory_is_free(rig)


def test_a_record_on_the_wire_fails_in_time_and_may_be_stored(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, *[silence] * 5)
    rig = rig_of(broker.cluster, delivery_timeout_ms=40_000)
    started = rig.clock.now
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=41)
    assert 40 <= rig.clock.now - started < 40.1
    error = error_of(future)
    assert isinstance(error, DeliveryTimeoutError)
    assert error.persisted is Persisted.MAYBE
    assert "its last attempt is unanswered after 2 attempts" in str(error)
    assert "the last error was: broker 1 at broker-1:9092: no response within 30 s" in str(error)


# Refused as out of sequence, though it may be stored ----------------------------------------------


NOT_LEADER, OUT_OF_ORDER, DUPLICATE = 6, 45, 46


def store_silently(broker: ScriptedBroker, heard: Heard) -> None:
    """The batch is stored, and no answer comes."""
    broker.produce_answer(heard, broker.cluster.store)


def store_and_cut(broker: ScriptedBroker, heard: Heard) -> None:
    """The batch is stored, and the connection breaks."""
    store_silently(broker, heard)
    raise ConnectionResetError("Connection reset by peer")


def recognise(offset: int) -> Answer:
    """The batch is known, and where it is."""

    def answer(broker: ScriptedBroker, heard: Heard) -> bytes:
        return broker.produce_answer(heard, lambda tp, batches: (0, offset))

    return answer


def two_unanswered(
    *after: Answer, brokers: int = 1, **options: Any
) -> tuple[SenderRig, list[FutureRecordMetadata]]:
    """A sender whose two batches are stored, with both answers lost.

    Sent again, the first of them is refused as out of sequence; ``after`` is what follows that.
    """
    cluster = ScriptedCluster(topics={"t": [1]})
    leader, *_ = [cluster.add(number) for number in range(1, brokers + 1)]
    rig = rig_of(cluster, batch_size=100, **options)
    start = rig.queue(b"0" * 60)  # only a leader that has acknowledged one gets two at a time
    assert rig.run(lambda: start.is_done)
    answers = [store_silently, store_and_cut, refuse(OUT_OF_ORDER), *after]
    leader.next(ApiKey.PRODUCE, *answers)
    return rig, [rig.queue(b"1" * 60), rig.queue(b"2" * 60)]


def test_a_repetition_that_is_recognised_proves_what_was_sent_before_it() -> None:
    rig, (first, second) = two_unanswered(recognise(2))
    ended: list[str] = []
    first.add_callback(lambda metadata: ended.append("first"))
    second.add_callback(lambda metadata: ended.append("second"))
    assert rig.run(lambda: first.is_done and second.is_done)
    assert first.succeeded()
    assert first.get(0).offset == -1  # the broker did not say
    assert ended == ["first", "second"]
    assert rig.cluster.values("t") == [b"0" * 60, b"1" * 60, b"2" * 60]


@pytest.mark.parametrize("answer", [recognise(1), recognise(0), refuse(DUPLICATE)])
def test_an_offset_too_low_for_what_was_sent_before_proves_nothing(answer: Answer) -> None:
    """The log was cut short and takes any batch for the first; or the offset is not told."""
    rig, (first, second) = two_unanswered(answer)
    assert rig.run(lambda: first.is_done and second.is_done)
    assert second.succeeded()
    assert first.exception is not None
    assert first.exception.persisted is Persisted.MAYBE
