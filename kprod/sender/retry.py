"""The verdict on a batch after a failed attempt: a pure function of failure and state.

The table is the produce-response handling of Kafka's ``Sender`` and ``TransactionManager`` for the
idempotent producer, with one rule made stricter: a batch that *may* be in the log is never sent
again under a new epoch, because the broker could not tell the copy from a new batch.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kprod.errors import BrokerError, ErrorCode, KprodError

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
SEQUENCE_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
FATAL = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""Codes after which an idempotent producer may never write again (``TransactionManager``)."""
CORRUPT_ATTEMPTS = 3


class Verdict(enum.Enum):
    """DONE: stored.

    RETRY: same bytes, same sequence. SPLIT: retry as two smaller batches. RESEQUENCE: retry under a
    new epoch. UNRESOLVED: wait for what later batches tell (see ``unresolved_batches``). FAIL: give
    up. EXPIRE: give up, after the earlier batches, which have run out of time, too.
    """

    DONE = enum.auto()
    RETRY = enum.auto()
    SPLIT = enum.auto()
    RESEQUENCE = enum.auto()
    UNRESOLVED = enum.auto()
    FAIL = enum.auto()
    EXPIRE = enum.auto()


@dataclass(frozen=True, slots=True)
class Attempt:
    """The state of a batch at the moment its attempt failed.

    ``oldest``: no earlier batch of its partition was sent and is still without an outcome.
    ``provable``: what becomes of later ones will tell whether it is stored.
    ``maybe_written``: this or an earlier attempt may have reached the log.
    ``repeated``: it was sent before this attempt, or it is part of a batch that may be stored.
    ``transactional``: it is part of a transaction, in the midst of which there is no other epoch.
    """

    records: int
    attempts: int
    retries: int
    out_of_time: bool
    has_sequence: bool
    oldest: bool
    provable: bool
    maybe_written: bool
    repeated: bool
    transactional: bool = False


def judge(error: KprodError, attempt: Attempt) -> Verdict:
    """Decide what becomes of a batch that failed with ``error``."""
    code = error.code if isinstance(error, BrokerError) else None
    if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and attempt.has_sequence:
        # An earlier attempt was stored and its answer was lost; unless there was none.
        return Verdict.DONE if attempt.repeated else Verdict.FAIL
    if attempt.out_of_time:
        return Verdict.FAIL if attempt.oldest else Verdict.EXPIRE
    if code in TOO_LARGE:
        return Verdict.SPLIT if attempt.records > 1 else Verdict.FAIL
    limit = CORRUPT_ATTEMPTS - 1 if code == ErrorCode.CORRUPT_MESSAGE else attempt.retries
    if attempt.attempts > min(limit, attempt.retries):
        return Verdict.FAIL
    if code in SEQUENCE_ERRORS and attempt.has_sequence:
        return _out_of_sequence(attempt, known=code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    return Verdict.RETRY if error.retriable else Verdict.FAIL


def _out_of_sequence(attempt: Attempt, *, known: bool) -> Verdict:
    """``known``: the broker knows this producer and epoch, and has a sequence to compare with."""
    if not attempt.oldest:
        return Verdict.RETRY  # an earlier batch is still on its way; after it the sequence will fit
    if not attempt.maybe_written:
        return Verdict.FAIL if attempt.transactional else Verdict.RESEQUENCE
    return Verdict.UNRESOLVED if known and attempt.provable else Verdict.FAIL
