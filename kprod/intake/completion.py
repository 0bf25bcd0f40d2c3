"""The callback of one call of ``send``, in the shape of Kafka's Java client"""

from __future__ import annotations

from functools import partial
from typing import Any

from kprod.config.kinds import safe_repr
from kprod.errors import RecordTypeError
from kprod.types import OnCompletion, RecordMetadata, TopicPartition
from kprod_ext.futures import FutureRecordMetadata


def check_callback(callback: Any) -> None:
    """Raises RecordTypeError for what cannot be called."""
    if not callable(callback):
        raise RecordTypeError(f"callback: expected a callable, got {safe_repr(callback)}")


def call_once(future: FutureRecordMetadata, callback: OnCompletion) -> FutureRecordMetadata:
    """Let the callback have the outcome of a queued record; returns the future."""
    future.add_both(partial(_call, callback, future.topic_partition))
    return future


def _call(callback: OnCompletion, tp: TopicPartition, outcome: RecordMetadata | Exception) -> None:
    if isinstance(outcome, RecordMetadata):
        callback(outcome, None)
    else:
        callback(RecordMetadata(*tp, tp, -1, -1, None, -1, -1, -1), outcome)
