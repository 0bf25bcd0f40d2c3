"""kprod: a Kafka producer for Python with a compiled hot path.

>>> from kprod import KafkaProducer
>>> with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
...     producer.send("greetings", b"hello", key=b"world").get(timeout=10).offset
"""

from __future__ import annotations

from kprod.errors import KafkaError, KafkaTimeoutError, KprodError, KprodTimeoutError
from kprod.producer import KafkaProducer
from kprod.types import (
    DeliveryReport,
    Persisted,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)
from kprod.version import VERSION

__version__ = VERSION

__all__ = [
    "DeliveryReport",
    "KafkaError",
    "KafkaProducer",
    "KafkaTimeoutError",
    "KprodError",
    "KprodTimeoutError",
    "Persisted",
    "ProducerRecord",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]
