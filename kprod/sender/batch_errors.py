"""The error that a batch ends in, and those of its single records (KIP-467)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from kprod.cluster.metadata import Metadata
from kprod.errors import (
    BrokerError,
    DeliveryTimeoutError,
    InvalidBatchError,
    KprodError,
    RecordTooLargeError,
)
from kprod.sender.retry import OUT_OF_ORDER_SEQUENCE, TOO_LARGE
from kprod.sender.sequences import Sequences
from kprod.types import Persisted, TopicPartition
from kprod_ext.batch import ProducerBatch


class FinalErrors:
    """Makes the errors of futures. Thread: the sender's only.

    ``trouble_with`` tells for a node why it takes no request now, None for no reason;
    ``delivery_timeout`` is seconds.
    """

    def __init__(
        self,
        metadata: Metadata,
        sequences: Sequences,
        trouble_with: Callable[[int, float], KprodError | None],
        delivery_timeout: float,
    ) -> None:
        self._metadata = metadata
        self._sequences = sequences
        self._trouble_with = trouble_with
        self._delivery_timeout = delivery_timeout

    def expired(self, batch: ProducerBatch, limit: float, state: str, now: float) -> KprodError:
        """The batch was not acknowledged for ``limit`` seconds; ``state`` says where it was."""
        cause = batch.last_error or self._metadata.trouble(batch.tp.topic)
        if cause is None and self._sequences.needs_producer_id:
            cause = self._sequences.identity.trouble
        if cause is None and (leader := self._metadata.snapshot.leader(batch.tp)) is not None:
            cause = self._trouble_with(leader.leader_id, now)
        error = DeliveryTimeoutError(
            f"{batch.record_count} records for {batch.tp} were not acknowledged within"
            f" delivery_timeout_ms ({limit * 1000:.0f} ms) of the first: {state} after"
            f" {batch.attempts} attempts"
            + ("" if cause is None else f"; the last error was: {cause}")
        )
        error.__cause__ = cause
        return error

    def final(self, batch: ProducerBatch, error: KprodError, now: float) -> KprodError:
        """The error for the batch's futures, with what is known of the log in ``persisted``."""
        final = self._in_the_users_words(batch, error, now)
        final.persisted = Persisted.MAYBE if batch.maybe_written else Persisted.NO
        return final

    def _in_the_users_words(
        self, batch: ProducerBatch, error: KprodError, now: float
    ) -> KprodError:
        if isinstance(error, BrokerError) and error.code in TOO_LARGE:
            return RecordTooLargeError(
                f"the broker refused a batch of {batch.size} bytes, {batch.record_count} records,"
                f" for {batch.tp}: larger than the topic's max.message.bytes"
            )
        if isinstance(error, DeliveryTimeoutError):
            return error
        if not error.retriable:
            return copy.copy(error)
        if now >= batch.created_at + self._delivery_timeout:
            return self.expired(batch, self._delivery_timeout, "no time was left", now)
        worn_out = copy.copy(error)
        worn_out.add_note(f"retries were used up after {batch.attempts} attempts")
        return worn_out


def unknown_fate(batch: ProducerBatch) -> KprodError:
    """The error of a batch that may be in the log and cannot be sent again safely."""
    error = BrokerError(
        OUT_OF_ORDER_SEQUENCE, f"{batch.tp}: an earlier attempt may have been stored"
    )
    error.persisted = Persisted.MAYBE
    return error


PerRecord = Sequence[tuple[int, KprodError]]
"""Errors with the index of the first record each is for, from 0 on; it holds up to the next."""


def errors_by_record(error: KprodError, tp: TopicPartition, records: int) -> PerRecord:
    """The errors of the records of a batch that ended in ``error``; empty for one and the same.

    Records the broker has named get its error with its text about them. The others get
    InvalidBatchError: nothing is wrong with them, they were in bad company (Kafka's ``Sender``
    tells them so by a plain KafkaException).
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
