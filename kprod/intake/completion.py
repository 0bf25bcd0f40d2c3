"""The callback of one ``send`` call, with the arguments of Kafka's Java client."""

from __future__ import annotations

from functools import partial
from typing import Any

from kprod.config.kinds import safe_repr
from kprod.errors import RecordTypeError
from kprod.types import OnCompletion, RecordMetadata, TopicPartition
from kprod_ext.futures import FutureRecordMetadata


def check_callback(callback: Any) -> None:
    """Raise RecordTypeError for an object that cannot be called."""
    if not callable(callback):
        raise RecordTypeError(f"callback: expected a callable, got {safe_repr(callback)}")


def call_once(future: FutureRecordMetadata, callback: OnCompletion) -> FutureRecordMetadata:
    """Call the callback with the result of a queued record; return the future."""
    future.add_both(partial(_call, callback, future.topic_partition))
    return future


def _call(callback: OnCompletion, tp: TopicPartition, outcome: RecordMetadata | Exception) -> None:
    if isinstance(outcome, RecordMetadata):
        callback(outcome, None)
    else:
        callback(RecordMetadata(*tp, tp, -1, -1, None, -1, -1, -1), outcome)
