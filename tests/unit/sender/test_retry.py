"""What becomes of a batch: one row for every error code a Produce response may carry."""

from __future__ import annotations

import dataclasses

import pytest

from kprod.errors import BrokerError, ConnectionLost, KprodError, ProtocolError
from kprod.errors import UnsupportedVersionError as NoVersion
from kprod.sender.retry import Attempt, Verdict, judge

DONE, RETRY, SPLIT = Verdict.DONE, Verdict.RETRY, Verdict.SPLIT
RENUMBER, FAIL = Verdict.RESEQUENCE, Verdict.FAIL

FIRST = Attempt(
    records=2,
    attempts=1,
    retries=2**31 - 1,
    out_of_time=False,
    has_sequence=True,
    oldest=True,
    provable=False,
    maybe_written=False,
    repeated=False,
)
"""The first attempt of an idempotent producer's batch; it cannot have been stored."""

# code: with a sequence, without one
TABLE: dict[int, tuple[Verdict, Verdict]] = {
    -1: (FAIL, FAIL),  # UNKNOWN_SERVER_ERROR
    2: (RETRY, RETRY),  # CORRUPT_MESSAGE
    3: (RETRY, RETRY),  # UNKNOWN_TOPIC_OR_PARTITION
    5: (RETRY, RETRY),  # LEADER_NOT_AVAILABLE
    6: (RETRY, RETRY),  # NOT_LEADER_OR_FOLLOWER
    7: (RETRY, RETRY),  # REQUEST_TIMED_OUT
    8: (FAIL, FAIL),  # BROKER_NOT_AVAILABLE
    9: (RETRY, RETRY),  # REPLICA_NOT_AVAILABLE
    10: (SPLIT, SPLIT),  # MESSAGE_TOO_LARGE
    13: (RETRY, RETRY),  # NETWORK_EXCEPTION
    14: (RETRY, RETRY),  # COORDINATOR_LOAD_IN_PROGRESS
    15: (RETRY, RETRY),  # COORDINATOR_NOT_AVAILABLE
    16: (RETRY, RETRY),  # NOT_COORDINATOR
    17: (FAIL, FAIL),  # INVALID_TOPIC_EXCEPTION
    18: (SPLIT, SPLIT),  # RECORD_LIST_TOO_LARGE
    19: (RETRY, RETRY),  # NOT_ENOUGH_REPLICAS
    20: (RETRY, RETRY),  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    21: (FAIL, FAIL),  # INVALID_REQUIRED_ACKS
    29: (FAIL, FAIL),  # TOPIC_AUTHORIZATION_FAILED
    31: (FAIL, FAIL),  # CLUSTER_AUTHORIZATION_FAILED
    32: (FAIL, FAIL),  # INVALID_TIMESTAMP
    35: (FAIL, FAIL),  # UNSUPPORTED_VERSION
    42: (FAIL, FAIL),  # INVALID_REQUEST
    43: (FAIL, FAIL),  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44: (FAIL, FAIL),  # POLICY_VIOLATION
    45: (RENUMBER, FAIL),  # OUT_OF_ORDER_SEQUENCE_NUMBER
    46: (FAIL, FAIL),  # DUPLICATE_SEQUENCE_NUMBER
    47: (RENUMBER, FAIL),  # INVALID_PRODUCER_EPOCH
    48: (FAIL, FAIL),  # INVALID_TXN_STATE
    49: (FAIL, FAIL),  # INVALID_PRODUCER_ID_MAPPING
    51: (RETRY, RETRY),  # CONCURRENT_TRANSACTIONS
    53: (FAIL, FAIL),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    56: (RETRY, RETRY),  # KAFKA_STORAGE_ERROR
    59: (RENUMBER, FAIL),  # UNKNOWN_PRODUCER_ID
    72: (RETRY, RETRY),  # LISTENER_NOT_FOUND
    74: (RETRY, RETRY),  # FENCED_LEADER_EPOCH
    75: (RETRY, RETRY),  # UNKNOWN_LEADER_EPOCH
    76: (FAIL, FAIL),  # UNSUPPORTED_COMPRESSION_TYPE
    87: (FAIL, FAIL),  # INVALID_RECORD
    89: (RETRY, RETRY),  # THROTTLING_QUOTA_EXCEEDED
    90: (FAIL, FAIL),  # PRODUCER_FENCED
    100: (RETRY, RETRY),  # UNKNOWN_TOPIC_ID
    103: (RETRY, RETRY),  # INCONSISTENT_TOPIC_ID
    120: (FAIL, FAIL),  # TRANSACTION_ABORTABLE
    999: (FAIL, FAIL),  # a code nobody has heard of
}


def verdict(error: KprodError | int, **state: object) -> Verdict:
    attempt = dataclasses.replace(FIRST, **state)  # type: ignore[arg-type]
    return judge(BrokerError(error) if isinstance(error, int) else error, attempt)


@pytest.mark.parametrize(("code", "expected"), [(code, row[0]) for code, row in TABLE.items()])
def test_an_idempotent_batch_after_its_first_attempt(code: int, expected: Verdict) -> None:
    assert verdict(code) is expected


@pytest.mark.parametrize(("code", "expected"), [(code, row[1]) for code, row in TABLE.items()])
def test_a_plain_batch_after_its_first_attempt(code: int, expected: Verdict) -> None:
    assert verdict(code, has_sequence=False) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ConnectionLost(""), RETRY), (ProtocolError(""), RETRY), (NoVersion(""), FAIL)],
)
def test_failures_of_the_connection(error: KprodError, expected: Verdict) -> None:
    assert verdict(error) is expected


# When there is no further attempt -----------------------------------------------------------------


@pytest.mark.parametrize("code", [code for code in TABLE if code != 46])
def test_nothing_is_tried_again_when_the_time_is_up(code: int) -> None:
    assert verdict(code, out_of_time=True) is FAIL


@pytest.mark.parametrize("code", [code for code in TABLE if code != 46])
def test_a_later_batch_does_not_run_out_of_time_before_an_earlier_one(code: int) -> None:
    assert verdict(code, out_of_time=True, oldest=False) is Verdict.EXPIRE


def test_a_duplicate_is_stored_however_late_it_is_told() -> None:
    assert verdict(46, out_of_time=True, attempts=9, retries=1, repeated=True) is DONE


@pytest.mark.parametrize(
    ("attempts", "retries", "expected"),
    [(1, 0, FAIL), (1, 1, RETRY), (2, 1, FAIL), (5, 5, RETRY), (6, 5, FAIL)],
)
@pytest.mark.parametrize("code", [6, 7, 13])
def test_retries_are_counted(code: int, attempts: int, retries: int, expected: Verdict) -> None:
    assert verdict(code, attempts=attempts, retries=retries) is expected


@pytest.mark.parametrize(("attempts", "expected"), [(1, RETRY), (2, RETRY), (3, FAIL), (9, FAIL)])
def test_a_corrupt_batch_is_not_sent_for_ever(attempts: int, expected: Verdict) -> None:
    assert verdict(2, attempts=attempts) is expected


def test_a_corrupt_batch_is_not_sent_more_often_than_allowed() -> None:
    assert verdict(2, attempts=1, retries=0) is FAIL


# Too large ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [10, 18])
def test_one_record_cannot_be_cut_up(code: int) -> None:
    assert verdict(code, records=1) is FAIL


@pytest.mark.parametrize("code", [10, 18])
def test_cutting_up_is_not_counted_as_a_retry(code: int) -> None:
    assert verdict(code, attempts=9, retries=0) is SPLIT


# Out of sequence ----------------------------------------------------------------------------------

SEQUENCE_CODES = [45, 47, 59]


@pytest.mark.parametrize("code", SEQUENCE_CODES)
@pytest.mark.parametrize("maybe_written", [False, True])
def test_a_batch_behind_another_waits_for_it(code: int, maybe_written: bool) -> None:
    assert verdict(code, oldest=False, maybe_written=maybe_written) is RETRY


@pytest.mark.parametrize("code", SEQUENCE_CODES)
def test_a_batch_that_may_be_stored_is_never_given_new_numbers(code: int) -> None:
    assert verdict(code, maybe_written=True) is FAIL


@pytest.mark.parametrize(("code", "expected"), [(45, Verdict.UNRESOLVED), (47, FAIL), (59, FAIL)])
def test_a_batch_that_may_be_stored_waits_for_those_behind_it(code: int, expected: Verdict) -> None:
    assert verdict(code, maybe_written=True, provable=True) is expected
