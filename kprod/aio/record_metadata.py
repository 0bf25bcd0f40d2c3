"""Where a record was stored, as ``aiokafka.structs.RecordMetadata`` tells it"""

from __future__ import annotations

from typing import NamedTuple

from kprod.buffer.delivery import NO_TIMESTAMP, BatchDelivery
from kprod.types import TopicPartition
from kprod_ext.futures import FutureRecordMetadata

CREATE_TIME, LOG_APPEND_TIME = 0, 1


class RecordMetadata(NamedTuple):
    """Field by field as aiokafka's.

    ``timestamp`` is milliseconds since the epoch; ``timestamp_type`` is 0 for the record's own, 1
    for the broker's append time. ``log_start_offset`` is always None, as for old brokers there.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int
    log_start_offset: None = None


def stored(native: FutureRecordMetadata) -> RecordMetadata:
    """Of a record that has its outcome. Raises what ended it."""
    told = native.value or native.get(0)
    delivery: BatchDelivery = native.delivery
    if delivery.is_split:
        delivery, _ = delivery.locate(native.index)
    kind = CREATE_TIME if delivery.append_time == NO_TIMESTAMP else LOG_APPEND_TIME
    return RecordMetadata(*told[:5], kind)


def nothing(native: FutureRecordMetadata) -> None:
    """With ``acks=0`` no broker tells anything."""
