"""Every error code a Produce response may carry, to an idempotent producer and to a plain one.

Each row says what becomes of two records in one batch after one such answer, whether the sender
looks for new metadata, and what the failure says of the log if every attempt is answered so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from kprod.errors import BrokerError, RecordTooLargeError
from kprod.types import Persisted, TopicPartition
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import (
    Answer,
    ScriptedBroker,
    cut,
    refuse,
)
from tests.support.sender_rig import MODES, error_of, rig_of

TP = TopicPartition("t", 0)
NO, MAYBE = Persisted.NO, Persisted.MAYBE


class Row(NamedTuple):
    """``again``: requests after one refusal; 0: the records fail at once.

    ``refresh``: the sender asks for metadata. ``persisted``: what a failure says.
    ``attempts``: how many there are at most when two retries are allowed.
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
    62: Row(again=0, persisted=MAYBE, attempts=1),  # one that means nothing here
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
def test_one_such_answer(broker: ScriptedBroker, mode: str, code: int, row: Row) -> None:
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
def test_nothing_but_such_answers(broker: ScriptedBroker, mode: str, code: int, row: Row) -> None:
    rig = rig_of(broker.cluster, **MODES[mode], retries=2)
    broker.next(ApiKey.PRODUCE, *[refuse(code)] * 10)
    futures = [rig.queue(b"a"), rig.queue(b"b")]
    assert rig.run(lambda: all(future.is_done for future in futures), seconds=10)
    assert broker.count(ApiKey.PRODUCE) == row.attempts
    for error in map(error_of, futures):
        assert error.persisted is row.persisted
        if row is SPLIT:
            assert isinstance(error, RecordTooLargeError)
        else:
            assert isinstance(error, BrokerError)
            assert error.code == code
            assert "t-0" in str(error)
            if row.attempts == 3 and code not in SEQUENCE:
                assert error.__notes__ == ["retries were used up after 3 attempts"]


# Success ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_stored_at_an_offset_that_is_not_told(broker: ScriptedBroker, mode: str) -> None:
    broker.next(ApiKey.PRODUCE, refuse(0))
    rig = rig_of(broker.cluster, **MODES[mode])
    future = rig.queue()
    assert rig.run(future.succeeded, seconds=5)
    assert future.get(0).offset == -1


# What the table cannot say ------------------------------------------------------------------------


@pytest.mark.parametrize("code", SEQUENCE)
def test_a_refused_sequence_begins_anew_under_the_next_epoch(
    broker: ScriptedBroker, code: int
) -> None:
    rig = rig_of(broker.cluster)
    assert rig.run(rig.queue(b"before").succeeded)
    broker.next(ApiKey.PRODUCE, refuse(code))
    assert rig.run(rig.queue(b"after").succeeded)
    assert [(b.producer_epoch, b.base_sequence) for b in broker.cluster.log[TP]] == [(0, 0), (1, 0)]


@pytest.mark.parametrize("code", SEQUENCE)
def test_a_refused_sequence_of_what_may_be_stored(broker: ScriptedBroker, code: int) -> None:
    rig = rig_of(broker.cluster)
    broker.next(ApiKey.PRODUCE, cut, refuse(code))
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert error_of(future).persisted is MAYBE


@pytest.mark.parametrize("first", [cut, refuse(7), refuse(19)])
def test_a_duplicate_is_a_success_when_it_was_sent_before(
    broker: ScriptedBroker, first: Answer
) -> None:
    broker.next(ApiKey.PRODUCE, first, refuse(46))
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    assert future.get(0).offset == -1


def test_a_duplicate_that_was_never_sent_before_is_a_loud_failure(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.next(ApiKey.PRODUCE, refuse(46))
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done, seconds=5)
    (note,) = error_of(future).__notes__
    assert "never sent before" in note
    assert "never sent before" in caplog.text
    assert rig.run(rig.queue().succeeded), "the next record is not harmed"


@pytest.mark.parametrize("code", FATAL)
def test_a_refusal_of_the_producer_itself_ends_it(broker: ScriptedBroker, code: int) -> None:
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


def test_halves_of_a_batch_may_be_tried_as_often_as_the_whole(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, refuse(19), refuse(19), refuse(10), refuse(19), refuse(19))
    rig = rig_of(broker.cluster, retries=2)
    futures = [rig.queue(b"a"), rig.queue(b"b")]
    assert rig.run(lambda: all(future.is_done for future in futures), seconds=10)
    assert [future.get(0).offset for future in futures] == [0, 1]


# Single records (KIP-467) -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("code", [32, 87])
def test_only_the_records_that_are_to_blame_are_told_so(
    broker: ScriptedBroker, mode: str, code: int
) -> None:
    broker.next(ApiKey.PRODUCE, refuse(code, records={1: "too old", 3: None}))
    rig = rig_of(broker.cluster, **MODES[mode])
    told: list[tuple[int, str]] = []
    futures = [rig.queue(b"%d" % number) for number in range(5)]
    for number, future in enumerate(futures):
        future.add_errback(lambda error, n=number: told.append((n, type(error).__name__)))
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
    assert rig.run(lambda: len(told) == 5, seconds=1)
    innocent, guilty = "InvalidBatchError", "BrokerError"
    assert told == list(enumerate([innocent, guilty, innocent, guilty, innocent]))
    assert rig.metrics.records_failed == 5
    assert rig.sender.finished


def test_what_is_said_of_records_is_made_safe_to_print(broker: ScriptedBroker) -> None:
    broker.next(ApiKey.PRODUCE, refuse(87, records={0: "\x1b[31m" + "x" * 5000}))
    rig = rig_of(broker.cluster)
    future = rig.queue()
    assert rig.run(lambda: future.is_done)
    text = str(error_of(future))
    assert "\x1b" not in text
    assert len(text) < 1200
