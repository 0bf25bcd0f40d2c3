"""The confluent face: Producer with librdkafka's options, delivery reports and errors

>>> from kprod.confluent import Producer
"""

from __future__ import annotations

from kprod.confluent.errors import (
    KafkaError,
    KafkaException,
    KeySerializationError,
    ProduceError,
    ValueSerializationError,
)
from kprod.confluent.events import ThrottleEvent
from kprod.confluent.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from kprod.confluent.partition_functions import consistent, fnv1a, murmur2
from kprod.confluent.producer import Producer
from kprod.confluent.serializing import SerializingProducer
from kprod.version import VERSION

__all__ = [
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "KafkaError",
    "KafkaException",
    "KeySerializationError",
    "Message",
    "ProduceError",
    "Producer",
    "SerializingProducer",
    "ThrottleEvent",
    "ValueSerializationError",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]


def version() -> str:
    """kprod's version."""
    return VERSION


def libversion() -> tuple[str, int]:
    """kprod's version once more, as text and as a number, 0x00MMmmpp: there is no librdkafka."""
    major, minor, patch = (int(part) for part in VERSION.split(".")[:3])
    return VERSION, major << 16 | minor << 8 | patch
