"""The errors of the single records of a batch that the broker refused (KIP-467)."""

from __future__ import annotations

from collections.abc import Sequence

from kprod.errors import BrokerError, InvalidBatchError, KprodError
from kprod.types import TopicPartition

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
