"""What becomes of a batch by its state; ``test_produce_codes`` has a row for every code."""

from __future__ import annotations

import dataclasses

import pytest

from kprod.errors import BrokerError, ConnectionLost, KprodError, ProtocolError
from kprod.errors import UnsupportedVersionError as NoVersion
from kprod.sender.retry import Attempt, Verdict, judge

DONE, RETRY, SPLIT, FAIL = Verdict.DONE, Verdict.RETRY, Verdict.SPLIT, Verdict.FAIL

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


CODES = [-1, 2, 6, 10, 45, 87, 999]
"""One of each kind; the last is a code that nobody has heard of."""


def verdict(error: KprodError | int, **state: object) -> Verdict:
    attempt = dataclasses.replace(FIRST, **state)  # type: ignore[arg-type]
    return judge(BrokerError(error) if isinstance(error, int) else error, attempt)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ConnectionLost(""), RETRY), (ProtocolError(""), RETRY), (NoVersion(""), FAIL)],
)
def test_failures_of_the_connection(error: KprodError, expected: Verdict) -> None:
    assert verdict(error) is expected


# When there is no further attempt -----------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_nothing_is_tried_again_when_the_time_is_up(code: int) -> None:
    assert verdict(code, out_of_time=True) is FAIL


@pytest.mark.parametrize("code", CODES)
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
def test_what_was_not_stored_is_given_new_numbers_unless_in_a_transaction(code: int) -> None:
    assert verdict(code) is Verdict.RESEQUENCE
    assert verdict(code, transactional=True) is FAIL


@pytest.mark.parametrize("code", SEQUENCE_CODES)
def test_a_batch_that_may_be_stored_is_never_given_new_numbers(code: int) -> None:
    assert verdict(code, maybe_written=True) is FAIL


@pytest.mark.parametrize(("code", "expected"), [(45, Verdict.UNRESOLVED), (47, FAIL), (59, FAIL)])
def test_a_batch_that_may_be_stored_waits_for_those_behind_it(code: int, expected: Verdict) -> None:
    assert verdict(code, maybe_written=True, provable=True) is expected
