"""The errors of batches that end without an acknowledgement, and those of their single records."""

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
