"""Partition queues without an accumulator."""

from __future__ import annotations

from collections import deque
from typing import Any

from kprod.buffer.accumulator import QueueSettings
from kprod.buffer.callbacks import Callbacks
from kprod.buffer.compression import CompressionRatios
from kprod.buffer.delivery import BatchDelivery
from kprod.types import TopicPartition
from kprod_ext import AppendContext, BufferPool, PartitionQueue, ProducerBatch, RecordClock

TP = TopicPartition("t", 0)
SETTINGS = QueueSettings(10.0)


def ignore(*_: object) -> None:
    """A callback that does nothing."""


def new_context(batch_size: int = 400, **parts: Any) -> AppendContext:
    """The context shared by queues; ``parts`` replace defaults."""
    given: dict[str, Any] = {
        "batch_max_size": batch_size,
        "clock": RecordClock(),
        "now": lambda: 0.0,
        "batch_type": ProducerBatch,
        "delivery_type": BatchDelivery,
        "callbacks": Callbacks(),
        "ratios": CompressionRatios(),
        "incomplete": set(),
        "on_change": deque[PartitionQueue]().append,
        "wake": ignore,
        "wake_within": ignore,
    }
    pool = parts.pop("pool", None) or BufferPool(100 * batch_size, batch_size)
    return AppendContext(pool, batch_size=batch_size, **{**given, **parts})


def new_queue(tp: TopicPartition = TP, settings: QueueSettings = SETTINGS, **parts: Any) -> Any:
    return PartitionQueue(new_context(**parts), tp, settings)


def new_batch(
    size: int = 400, delivery: Any = None, tp: TopicPartition = TP, **options: Any
) -> ProducerBatch:
    pool = options.pop("pool", None) or BufferPool(size, size)
    return ProducerBatch(
        pool.allocate(size, 0), tp, delivery, options.pop("now", 0.0), write_limit=size, **options
    )
