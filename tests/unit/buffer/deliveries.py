"""Deliveries without a sender, and futures of their records."""

from __future__ import annotations

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.delivery import BatchDelivery
from kprod.types import TopicPartition
from kprod_ext.futures import FutureRecordMetadata

TP = TopicPartition("t", 3)


def no_op() -> None:
    """Do nothing."""


def new_delivery(callbacks: Callbacks | None = None) -> BatchDelivery:
    return BatchDelivery(TP, no_op, callbacks)


def future_of(delivery: BatchDelivery, index: int = 2) -> FutureRecordMetadata:
    """Timestamp 1000 ms, a key of 3 bytes, a null value, headers of 5 bytes."""
    return FutureRecordMetadata(delivery, index, 1000, 3, -1, 5)
