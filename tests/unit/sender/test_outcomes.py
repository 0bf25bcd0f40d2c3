"""Outcomes of records: stored, retried, or failed with what is known of the log."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from kprod.errors import BrokerError, DeliveryTimeoutError, RecordTooLargeError
from kprod.types import Persisted, TopicPartition
from kprod.wire.versions import ApiKey
from kprod_ext.futures import FutureRecordMetadata
from tests.support.scripted_cluster import (
    Answer,
    ReceivedRequest,
    ScriptedBroker,
    cut,
    refuse,
    silence,
)
from tests.support.sender_rig import MODES, SenderRig, error_of, rig_of
from tests.unit.buffer.accumulating import Accumulating

TP = TopicPartition("t", 0)
OUT_OF_ORDER, DUPLICATE = 45, 46
LAST = 2**31 - 1  # the largest sequence


def all_memory_is_free(rig: SenderRig) -> bool:
    pool = rig.sender.accumulator.pool
    return pool.available == pool.total


def test_the_sender_is_not_finished_before_callbacks_have_run(broker: ScriptedBroker) -> None:
    rig = rig_of(broker.cluster)
    finished: list[bool] = []
    broker.next(ApiKey.PRODUCE, ScriptedBroker.usual, refuse(87))
    for _ in range(2):
        future = rig.queue().add_both(lambda _: finished.append(rig.sender.finished))
        assert rig.run(lambda future=future: future.is_done)  # type: ignore[misc]
    assert finished == [False, False], "a flush would not wait for the callback"
    assert rig.sender.finished


def test_a_retry_sends_identical_bytes(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, refuse(7), cut, refuse(19))
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue().succeeded)
    bodies = [request.body for request in broker.received if request.api is ApiKey.PRODUCE]
    sent = {bytes(body.topic_data[0].partition_data[0].records) for body in bodies}
    assert (len(bodies), len(sent)) == (4, 1)


@pytest.mark.parametrize("mode", MODES)
def test_retries_are_sent_one_by_one_and_in_order(broker: ScriptedBroker, mode: str) -> None:
    patient: dict[str, Any] = {"request_timeout_ms": 600_000, "delivery_timeout_ms": 900_000}
    rig = rig_of(broker.cluster, batch_size=100, **patient, **MODES[mode])
    assert rig.run(rig.queue(b"0" * 60).succeeded)
    held: list[ReceivedRequest] = []

    def hold(_broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        held.append(request)
        return b""

    def answer(answer: Answer, number: int) -> None:
        rig.backend.connections[0].deliver(answer(broker, held[number]) or b"")
        rig.run(lambda: False, seconds=5)

    broker.next(ApiKey.PRODUCE, hold, hold, hold)
    futures = [rig.queue(b"1" * 60), rig.queue(b"2" * 60)]
    assert rig.run(lambda: len(held) == 2)
    answer(refuse(7), 0)
    assert len(held) == 2, "a later one is in flight"
    answer(refuse(7), 1)
    assert len(held) == 3, "one is in flight again"
    answer(ScriptedBroker.usual, 2)
    assert all(future.succeeded() for future in futures)
    assert broker.cluster.values("t") == [b"0" * 60, b"1" * 60, b"2" * 60]


def test_a_new_batch_waits_while_a_batch_that_may_be_stored_is_in_flight_again(
    broker: ScriptedBroker,
) -> None:
    rig = rig_of(broker.cluster, request_timeout_ms=600_000, delivery_timeout_ms=900_000)
    assert rig.run(rig.queue(b"0").succeeded)  # the leader has proven itself
    held: list[ReceivedRequest] = []

    def hold(_broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        held.append(request)
        return b""

    broker.next(ApiKey.PRODUCE, refuse(7), hold)  # REQUEST_TIMED_OUT
    first = rig.queue(b"1")
    assert rig.run(lambda: len(held) == 1)
    second = rig.queue(b"2")
    sent = broker.count(ApiKey.PRODUCE)
    rig.run(lambda: False, seconds=5)
    assert broker.count(ApiKey.PRODUCE) == sent
    rig.backend.connections[-1].deliver(broker.usual(held[0]) or b"")
    assert rig.run(lambda: first.succeeded() and second.succeeded())
    assert broker.cluster.values("t") == [b"0", b"1", b"2"]


def test_an_unsent_record_times_out_as_not_persisted(broker: ScriptedBroker) -> None:
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
    assert str(error.__cause__) == "LEADER_NOT_AVAILABLE (5): t-0 has no leader"
    assert all_memory_is_free(rig)


def test_a_record_in_flight_times_out_as_maybe_persisted(broker: ScriptedBroker) -> None:
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


# Out of sequence, although it may be stored -------------------------------------------------------


def store_silently(broker: ScriptedBroker, request: ReceivedRequest) -> None:
    """Store the batch, and do not answer."""
    broker.produce_answer(request, broker.cluster.store)


def store_and_cut(broker: ScriptedBroker, request: ReceivedRequest) -> None:
    """Store the batch, and break the connection."""
    store_silently(broker, request)
    raise ConnectionResetError("Connection reset by peer")


def recognise(offset: int) -> Answer:
    """Answer that the batch is stored at ``offset``."""

    def answer(broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        return broker.produce_answer(request, lambda tp, batches: (0, offset))

    return answer


def two_unanswered(
    broker: ScriptedBroker, after: Answer, sequence: int = 0
) -> tuple[SenderRig, list[FutureRecordMetadata]]:
    """A sender whose two batches, after ``sequence``, are stored, with both answers lost.

    The retry of the first is refused as out of sequence; ``after`` answers the next request.
    """
    rig = rig_of(broker.cluster, batch_size=100)
    partition = rig.sender.partitions.of(rig.sender.accumulator.partition_queue(TP))
    for number in (0, sequence):  # the first acknowledgement allows two in flight
        partition.next_sequence = number
        assert rig.run(rig.queue(b"0" * 60).succeeded)
    broker.next(ApiKey.PRODUCE, store_silently, store_and_cut, refuse(OUT_OF_ORDER), after)
    return rig, [rig.queue(b"1" * 60), rig.queue(b"2" * 60)]


@pytest.mark.parametrize(
    "sequences", [(7, 8, 9), (LAST - 1, LAST, 0), (LAST, 0, 1)], ids=["few", "last", "first"]
)
def test_a_recognised_duplicate_proves_that_earlier_batches_are_stored(
    broker: ScriptedBroker, sequences: tuple[int, int, int]
) -> None:
    """Sequences wrap around."""
    rig, (first, second) = two_unanswered(broker, recognise(3), sequences[0])
    ended: list[str] = []
    first.add_callback(lambda metadata: ended.append("first"))
    second.add_callback(lambda metadata: ended.append("second"))
    assert rig.run(lambda: first.is_done and second.is_done)
    assert first.succeeded()
    assert first.get(0).offset == -1  # the broker did not say
    assert ended == ["first", "second"]
    _, *log = broker.cluster.log[TP]
    assert tuple(batch.base_sequence for batch in log) == sequences
    assert rig.cluster.values("t")[1:] == [b"0" * 60, b"1" * 60, b"2" * 60]


@pytest.mark.parametrize("sequence", [7, LAST - 1, LAST])
@pytest.mark.parametrize("answer", [recognise(2), recognise(0), refuse(DUPLICATE)])
def test_a_duplicate_at_too_low_an_offset_proves_nothing_of_earlier_batches(
    broker: ScriptedBroker, answer: Answer, sequence: int
) -> None:
    """The log was truncated and takes any batch as the first; or there is no offset."""
    rig, (first, second) = two_unanswered(broker, answer, sequence)
    assert rig.run(lambda: first.is_done and second.is_done)
    assert second.succeeded()
    assert first.exception is not None
    assert first.exception.persisted is Persisted.MAYBE


def test_an_overtaken_batch_is_not_provable() -> None:
    """A log that began with the second batch has no place for the first."""
    rig = Accumulating(batches=100)
    rig.number_from(0)
    batches = []
    for _ in range(4):
        rig.append(value=bytes(2000))
        batches += rig.drain()
        batches[-1].partition.begin_attempt(batches[-1], 0.0)
    start, first, second, _ = batches
    partition = first.partition
    partition.stored(start, 100, -1, 0.0)
    assert partition.is_provable(first)
    partition.stored(second, 102, -1, 0.0)
    assert not partition.is_provable(first)


# Every error code that a Produce response may carry -----------------------------------------------


NO, MAYBE = Persisted.NO, Persisted.MAYBE


class Row(NamedTuple):
    """``again``: requests after one error response; 0: the records fail at once.

    ``refresh``: whether metadata is requested. ``persisted``: that of the error.
    ``attempts``: the most with two retries.
    """

    again: int
    refresh: bool = False
    persisted: Persisted = NO
    attempts: int = 3


FAILS = Row(again=0, attempts=1)
RETRIED = Row(again=1)
MOVED = Row(again=1, refresh=True)
SPLIT = Row(again=2, attempts=3)  # the whole and, once each, its halves

BOTH: dict[int, Row] = {
    -1: Row(again=0, persisted=MAYBE, attempts=1),  # UNKNOWN_SERVER_ERROR
    2: RETRIED,  # CORRUPT_MESSAGE
    3: MOVED,  # UNKNOWN_TOPIC_OR_PARTITION
    5: MOVED,  # LEADER_NOT_AVAILABLE
    6: MOVED,  # NOT_LEADER_OR_FOLLOWER
    7: Row(again=1, persisted=MAYBE),  # REQUEST_TIMED_OUT
    8: FAILS,  # BROKER_NOT_AVAILABLE
    9: MOVED,  # REPLICA_NOT_AVAILABLE
    10: SPLIT,  # MESSAGE_TOO_LARGE
    13: Row(again=1, refresh=True, persisted=MAYBE),  # NETWORK_EXCEPTION
    14: RETRIED,  # COORDINATOR_LOAD_IN_PROGRESS
    15: RETRIED,  # COORDINATOR_NOT_AVAILABLE
    16: RETRIED,  # NOT_COORDINATOR
    17: FAILS,  # INVALID_TOPIC_EXCEPTION
    18: SPLIT,  # RECORD_LIST_TOO_LARGE
    19: RETRIED,  # NOT_ENOUGH_REPLICAS
    20: Row(again=1, persisted=MAYBE),  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    21: FAILS,  # INVALID_REQUIRED_ACKS
    29: FAILS,  # TOPIC_AUTHORIZATION_FAILED
    31: FAILS,  # CLUSTER_AUTHORIZATION_FAILED
    32: FAILS,  # INVALID_TIMESTAMP
    35: FAILS,  # UNSUPPORTED_VERSION
    42: FAILS,  # INVALID_REQUEST
    43: FAILS,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44: FAILS,  # POLICY_VIOLATION
    46: Row(again=0, persisted=MAYBE, attempts=1),  # DUPLICATE_SEQUENCE_NUMBER, at first
    48: FAILS,  # INVALID_TXN_STATE
    49: FAILS,  # INVALID_PRODUCER_ID_MAPPING
    51: RETRIED,  # CONCURRENT_TRANSACTIONS
    53: FAILS,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    56: Row(again=1, refresh=True, persisted=MAYBE),  # KAFKA_STORAGE_ERROR
    72: MOVED,  # LISTENER_NOT_FOUND
    74: MOVED,  # FENCED_LEADER_EPOCH
    75: RETRIED,  # UNKNOWN_LEADER_EPOCH
    76: FAILS,  # UNSUPPORTED_COMPRESSION_TYPE
    87: FAILS,  # INVALID_RECORD
    89: RETRIED,  # THROTTLING_QUOTA_EXCEEDED
    90: FAILS,  # PRODUCER_FENCED
    100: MOVED,  # UNKNOWN_TOPIC_ID
    103: MOVED,  # INCONSISTENT_TOPIC_ID
    120: FAILS,  # TRANSACTION_ABORTABLE
    62: Row(again=0, persisted=MAYBE, attempts=1),  # not a code of this API
}
SEQUENCE = (45, 47, 59)  # OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID
TABLE = {
    **{("idempotent", code): row for code, row in BOTH.items()},
    **{("plain", code): row for code, row in BOTH.items()},
    **{("idempotent", code): RETRIED for code in SEQUENCE},
    **{("plain", code): FAILS for code in SEQUENCE},
}
FATAL = (31, 53, 90)


def rows() -> list[Any]:
    return [pytest.param(*key, row, id=f"{key[0]}-{key[1]}") for key, row in TABLE.items()]


@pytest.mark.parametrize(("mode", "code", "row"), rows())
def test_one_error_response(broker: ScriptedBroker, mode: str, code: int, row: Row) -> None:
    rig = rig_of(broker.cluster, **MODES[mode])
    broker.next(ApiKey.PRODUCE, refuse(code))
    asked = broker.count(ApiKey.METADATA)
    futures = [rig.queue(b"a"), rig.queue(b"b")]
    assert rig.run(lambda: all(future.is_done for future in futures), seconds=5)
    assert broker.count(ApiKey.PRODUCE) == 1 + row.again
    rig.run(lambda: False, seconds=1)
    assert broker.count(ApiKey.METADATA) - asked == row.refresh
    if row.again:
        assert [future.get(0).offset for future in futures] == [0, 1]
        assert broker.cluster.values("t") == [b"a", b"b"]
    else:
        assert {error_of(future).persisted for future in futures} == {row.persisted}
    assert rig.sender.finished
    assert rig.sender.accumulator.pool.available == rig.sender.accumulator.pool.total


@pytest.mark.parametrize(("mode", "code", "row"), rows())
def test_repeated_error_responses(broker: ScriptedBroker, mode: str, code: int, row: Row) -> None:
    rig = rig_of(broker.cluster, **MODES[mode], retries=2)
    broker.next(ApiKey.PRODUCE, *[refuse(code)] * 10)
    futures = [rig.queue(b"a"), rig.queue(b"b")]
    assert rig.run(lambda: all(future.is_done for future in futures), seconds=10)
    assert broker.count(ApiKey.PRODUCE) == row.attempts
    for error in map(error_of, futures):
        assert error.persisted is row.persisted
        if row is SPLIT:
            assert isinstance(error, RecordTooLargeError)
            assert "max.message.bytes" in str(error)
        else:
            assert isinstance(error, BrokerError)
            assert error.code == code
            assert "t-0" in str(error)
            if row.attempts == 3 and code not in SEQUENCE:
                assert error.__notes__ == ["retries were used up after 3 attempts"]


@pytest.mark.parametrize("mode", MODES)
def test_a_success_without_an_offset_has_offset_minus_1(broker: ScriptedBroker, mode: str) -> None:
    broker.next(ApiKey.PRODUCE, refuse(0))
    rig = rig_of(broker.cluster, **MODES[mode])
    future = rig.queue()
    assert rig.run(future.succeeded, seconds=5)
    assert future.get(0).offset == -1


@pytest.mark.parametrize("first", [cut, refuse(7), refuse(19)])
def test_a_duplicate_error_for_a_retry_is_a_success(broker: ScriptedBroker, first: Answer) -> None:
    broker.next(ApiKey.PRODUCE, first, refuse(46))
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert future.get(0).offset == -1


def test_a_duplicate_error_for_a_first_attempt_fails_and_is_logged(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.next(ApiKey.PRODUCE, refuse(46))
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    (note,) = error_of(future).__notes__
    assert "never sent before" in note
    assert "never sent before" in caplog.text
    assert rig.run(rig.queue().succeeded), "the next record is stored"


@pytest.mark.parametrize("code", FATAL)
def test_a_fatal_error_code_ends_the_producer(broker: ScriptedBroker, code: int) -> None:
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue(b"before").succeeded)
    broker.next(ApiKey.PRODUCE, refuse(code))
    refused, other = rig.queue(b"refused"), rig.queue(b"other", partition=1)
    assert rig.run(lambda: refused.is_done and other.is_done, seconds=5)
    sent = broker.count(ApiKey.PRODUCE)
    later = rig.queue(b"later")
    assert rig.run(lambda: later.is_done, seconds=1)
    error = error_of(later)
    assert isinstance(error, BrokerError)
    assert (error.code, error.persisted) == (code, NO)
    assert "make a new one" in error.__notes__[0]
    assert broker.count(ApiKey.PRODUCE) == sent, "nothing more is sent"
    assert broker.cluster.values("t") == [b"before"]


def test_halves_of_a_split_batch_have_all_retries_again(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, refuse(19), refuse(19), refuse(10), refuse(19), refuse(19))
    rig = rig_of(broker.cluster, retries=2)
    futures = [rig.queue(b"a"), rig.queue(b"b")]
    assert rig.run(lambda: all(future.is_done for future in futures), seconds=10)
    assert [future.get(0).offset for future in futures] == [0, 1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("code", [32, 87])
def test_only_invalid_records_of_a_batch_get_the_error_of_the_broker(
    broker: ScriptedBroker, mode: str, code: int
) -> None:
    broker.next(ApiKey.PRODUCE, refuse(code, records={1: "too old", 3: None}))
    rig = rig_of(broker.cluster, **MODES[mode])
    errors: list[tuple[int, str]] = []
    futures = [rig.queue(b"%d" % number) for number in range(5)]
    for number, future in enumerate(futures):
        future.add_errback(lambda error, n=number: errors.append((n, type(error).__name__)))
    assert rig.run(lambda: all(future.is_done for future in futures), seconds=5)
    assert [future.retriable() for future in futures] == [True, False, True, False, True]
    for number, text in ((1, "record 1 of its batch: too old"), (3, "record 3 of its batch")):
        error = error_of(futures[number])
        assert isinstance(error, BrokerError)
        assert error.code == code
        assert text in str(error)
    for number in (0, 2, 4):
        assert "t-0: the batch was refused because of 2 other records" in str(
            error_of(futures[number])
        )
    assert {error_of(future).persisted for future in futures} == {NO}
    assert rig.run(lambda: len(errors) == 5, seconds=1)
    other, invalid = "InvalidBatchError", "BrokerError"
    assert errors == list(enumerate([other, invalid, other, invalid, other]))
    assert rig.metrics.records_failed == 5
    assert rig.sender.finished


def test_error_messages_of_the_broker_are_made_printable(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, refuse(87, records={0: "\x1b[31m" + "x" * 5000}))
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done)
    text = str(error_of(future))
    assert "\x1b" not in text
    assert len(text) < 1200
