"""The error that a batch ends in, and those of its single records (KIP-467)."""

from __future__ import annotations

from collections.abc import Sequence

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
    told = f": {text}" if text else ""
    own = BrokerError(error.code, f"{tp}: record {index} of its batch{told}")
    own.persisted = error.persisted
    return own


def _innocent(error: BrokerError, tp: TopicPartition, named: int) -> KprodError:
    other = InvalidBatchError(
        f"{tp}: the batch was refused because of {named} other records in it ({error.name});"
        " sent again, this one may be stored"
    )
    other.persisted = error.persisted
    return other
