"""Drop-in replacement for confluent-kafka's Producer, with its options, reports and errors:

>>> from kprod.confluent import Producer
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kprod.confluent.errors import (
    KafkaError,
    KafkaException,
    KeySerializationError,
    ProduceError,
    ValueSerializationError,
)
from kprod.confluent.events import ThrottleEvent
from kprod.confluent.producer import Producer, SerializingProducer
from kprod.confluent.topic_partition import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
    consistent,
    fnv1a,
    murmur2,
)
from kprod.version import VERSION
from kprod_ext.confluent import Message

if TYPE_CHECKING:
    from kprod.confluent.aio import AIOProducer

TIMESTAMP_NOT_AVAILABLE, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME = 0, 1, 2

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AIOProducer",
    "KafkaError",
    "KafkaException",
    "KeySerializationError",
    "Message",
    "ProduceError",
    "Producer",
    "SerializingProducer",
    "ThrottleEvent",
    "TopicPartition",
    "ValueSerializationError",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]


def __getattr__(name: str) -> Any:
    """Import ``AIOProducer`` on first use, because it loads asyncio."""
    if name == "AIOProducer":
        from kprod.confluent.aio import AIOProducer

        return AIOProducer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def version() -> str:
    """kprod's version."""
    return VERSION


def libversion() -> tuple[str, int]:
    """kprod's version as text and as the number 0x00MMmmpp. There is no librdkafka."""
    major, minor, patch = (int(part) for part in VERSION.split(".")[:3])
    return VERSION, major << 16 | minor << 8 | patch
