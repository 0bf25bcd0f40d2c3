"""A batch without a sender, and the futures of its records."""

from __future__ import annotations

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.delivery import BatchDelivery
from kprod.types import TopicPartition
from kprod_ext.futures import FutureRecordMetadata

TP = TopicPartition("t", 3)


def nobody() -> None:
    """Hurry nobody."""


def new_delivery(callbacks: Callbacks | None = None) -> BatchDelivery:
    return BatchDelivery(TP, nobody, callbacks)


def future_of(delivery: BatchDelivery, index: int = 2) -> FutureRecordMetadata:
    """A record written at 1000 ms with a key of 3 bytes, a null value, headers of 5 bytes."""
    return FutureRecordMetadata(delivery, index, 1000, 3, -1, 5)
