"""The verdict on a batch after a failed attempt, and the errors of a batch that is given up.

The verdict is a pure function of the failure and the state of the batch. It follows how Kafka's
``Sender`` and ``TransactionManager`` handle produce responses of the idempotent producer, but one
rule is stricter. A batch that *may* be in the log is never sent again under a new epoch, because
the broker could not distinguish the copy from a new batch.
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
"""Codes after which an idempotent producer can never write again (``TransactionManager``)."""
CORRUPT_ATTEMPTS = 3


class Verdict(enum.Enum):
    """What to do with a batch after a failed attempt.

    DONE: nothing, it is stored. RETRY: send it again with the same bytes and sequence. SPLIT: send
    it again as two smaller batches. RESEQUENCE: send it again under a new epoch. UNRESOLVED: wait
    for what later batches show (see ``Partition.unresolved``). FAIL: give up. EXPIRE: give up after
    the earlier batches, whose time is over as well.
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

    ``oldest``: it is the first of its partition's batches in flight. ``provable``: the
    acknowledgement of a later batch can prove that it is stored. ``maybe_written``: this or an
    earlier attempt may have reached the log. ``repeated``: it was sent before this attempt, or it
    is part of a split batch that may be stored. ``transactional``: it belongs to a transaction,
    whose epoch cannot change before it ends.
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
    """Decide what to do with a batch that failed with ``error``."""
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
    """The verdict on a batch that was refused for its sequence or epoch.

    ``known``: the broker knows this producer and epoch, and has a sequence to compare with.
    """
    if not attempt.oldest:
        return Verdict.RETRY  # an earlier batch is still on its way; after it the sequence will fit
    if not attempt.maybe_written:
        return Verdict.FAIL if attempt.transactional else Verdict.RESEQUENCE
    return Verdict.UNRESOLVED if known and attempt.provable else Verdict.FAIL


# The errors of a batch, and those of its single records (KIP-467) ---------------------------------


def too_large(batch: ProducerBatch) -> KprodError:
    """The error of a batch that is larger than the topic allows, according to the broker."""
    records = counted(batch.record_count, "record")
    return RecordTooLargeError(
        f"the broker refused a batch of {batch.size} bytes, {records}, for {batch.tp}:"
        " larger than the topic's max.message.bytes"
    )


def expired(batch: ProducerBatch, limit: float, state: str, cause: KprodError | None) -> KprodError:
    """The error of a batch that was not acknowledged within ``limit`` seconds.

    ``state`` says where the batch was. ``cause`` is the last error that kept it there, or None.
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
"""Errors with indexes. An error applies from the record with its index up to the record before the
next index. The first index is 0."""


def errors_by_record(error: KprodError, tp: TopicPartition, records: int) -> PerRecord:
    """The errors of the records of a batch that ended in ``error``; empty if all have ``error``.

    A record that the broker has named gets the broker's error with its text for that record. The
    others get InvalidBatchError: the broker refused the batch, but not because of them (Kafka's
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
