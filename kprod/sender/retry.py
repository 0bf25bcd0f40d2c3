"""The verdict on a batch after a failed attempt, and the errors of one that is given up.

The verdict is a pure function of failure and state. Its table is the produce-response handling of
Kafka's ``Sender`` and ``TransactionManager`` for the idempotent producer, with one rule made
stricter: a batch that *may* be in the log is never sent again under a new epoch, because the broker
could not distinguish the copy from a new batch.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from kprod.errors import (
    BrokerError,
    DeliveryTimeoutError,
    ErrorCode,
    InvalidBatchError,
    KprodError,
    RecordTooLargeError,
)
from kprod.quantities import counted
from kprod.types import Persisted, TopicPartition
from kprod_ext.batch import ProducerBatch

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
    new epoch. UNRESOLVED: wait for what later batches show (see ``Partition.unresolved``). FAIL:
    give up. EXPIRE: give up, after the earlier batches, which have run out of time, too.
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

    ``oldest``: it is the first of the batches in flight of its partition.
    ``provable``: the results of later batches will show whether it is stored.
    ``maybe_written``: this or an earlier attempt may have reached the log.
    ``repeated``: it was sent before, or it was split from a batch that may be stored.
    ``transactional``: it belongs to a transaction, whose epoch cannot change before its end.
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


# The errors of a batch, and those of its single records (KIP-467) ---------------------------------


def too_large(batch: ProducerBatch) -> KprodError:
    """The error of a batch that the broker takes for larger than the topic allows."""
    records = counted(batch.record_count, "record")
    return RecordTooLargeError(
        f"the broker refused a batch of {batch.size} bytes, {records}, for {batch.tp}:"
        " larger than the topic's max.message.bytes"
    )


def expired(batch: ProducerBatch, limit: float, state: str, cause: KprodError | None) -> KprodError:
    """The error of a batch that was not acknowledged for ``limit`` seconds.

    ``state`` says where it was, ``cause`` is the last error that kept it there, if any is known.
    """
    records, attempts = counted(batch.record_count, "record"), counted(batch.attempts, "attempt")
    error = DeliveryTimeoutError(
        f"{records} for {batch.tp} had no acknowledgement within delivery_timeout_ms"
        f" ({limit * 1000:.0f} ms) of the first: {state} after {attempts}"
        + ("" if cause is None else f"; the last error was: {cause}")
    )
    error.__cause__ = cause
    return error


def unknown_fate(batch: ProducerBatch) -> KprodError:
    """The error of a batch that may be in the log and cannot be sent again safely."""
    error = BrokerError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{batch.tp}: an earlier attempt may have been stored",
    )
    error.persisted = Persisted.MAYBE
    return error


PerRecord = Sequence[tuple[int, KprodError]]
"""Errors with the index of the first record each is for, from 0 on; it holds up to the next."""


def errors_by_record(error: KprodError, tp: TopicPartition, records: int) -> PerRecord:
    """The errors of the records of a batch that ended in ``error``; empty for one and the same.

    Records the broker has named get its error with its text about them. The others get
    InvalidBatchError: nothing is wrong with them, the broker refused others of their batch (Kafka's
    ``Sender`` gives them a plain KafkaException).
    """
    if not isinstance(error, BrokerError):
        return ()
    named = {i: text for i, text in error.record_errors.items() if 0 <= i < records}
    if not named:
        return ()
    found: list[tuple[int, KprodError]] = []
    innocent: KprodError | None = None
    for index in range(records):
        if index in named:
            innocent = None
            found.append((index, _named(error, tp, index, named[index])))
        elif innocent is None:
            innocent = _innocent(error, tp, len(named))
            found.append((index, innocent))
    return found


def _named(error: BrokerError, tp: TopicPartition, index: int, text: str | None) -> KprodError:
    said = f": {text}" if text else ""
    own = BrokerError(error.code, f"{tp}: record {index} of its batch{said}")
    own.persisted = error.persisted
    return own


def _innocent(error: BrokerError, tp: TopicPartition, named: int) -> KprodError:
    other = InvalidBatchError(
        f"{tp}: the batch was refused because of {named} other records in it ({error.name});"
        " sent again, this one may be stored"
    )
    other.persisted = error.persisted
    return other
