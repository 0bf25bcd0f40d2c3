"""Drop-in replacement for kafka-python. Change one import line:

>>> from kprod.kafka import KafkaProducer
"""

from __future__ import annotations

from kprod.kafka import errors
from kprod.kafka.future import Future, FutureRecordMetadata
from kprod.kafka.partitioner import murmur2
from kprod.kafka.producer import KafkaProducer
from kprod.types import RecordMetadata, TopicPartition

__all__ = [
    "Future",
    "FutureRecordMetadata",
    "KafkaProducer",
    "RecordMetadata",
    "TopicPartition",
    "errors",
    "murmur2",
]
