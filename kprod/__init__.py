"""kprod is a Kafka producer for Python with a compiled hot path.

>>> from kprod import KafkaProducer
>>> with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
...     producer.send("greetings", b"hello", key=b"world").get(timeout=10).offset
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import kprod.stale_extensions  # noqa: F401  (first: it warns before the extensions are loaded)
from kprod.config.option_types import ProducerOptions
from kprod.errors import (
    AuthenticationError,
    BrokerError,
    BufferFullError,
    ConfigError,
    ConnectionLost,
    DeliveryError,
    DeliveryTimeoutError,
    IllegalStateError,
    InvalidBatchError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    KprodError,
    KprodTimeoutError,
    PartitionError,
    ProducerClosedError,
    ProducerFencedError,
    ProtocolError,
    RecordTooLargeError,
    RecordTypeError,
    SaslAuthenticationError,
    SerializationError,
    TlsAuthenticationError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionTimeoutError,
    UnfinishedCallError,
    UnsupportedVersionError,
)
from kprod.producer import KafkaProducer
from kprod.transactional.group_offsets import GroupMetadata
from kprod.transactional.transaction_calls import Transaction
from kprod.types import (
    BytesLike,
    DeliveryReport,
    Header,
    Headers,
    NextStep,
    Persisted,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)
from kprod.version import VERSION
from kprod_ext.futures import FutureRecordMetadata

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery, BulkReport

__version__ = VERSION

__all__ = [
    "AuthenticationError",
    "BrokerError",
    "BufferFullError",
    "BulkDelivery",
    "BulkReport",
    "BytesLike",
    "ConfigError",
    "ConnectionLost",
    "DeliveryError",
    "DeliveryReport",
    "DeliveryTimeoutError",
    "FutureRecordMetadata",
    "GroupMetadata",
    "Header",
    "Headers",
    "IllegalStateError",
    "InvalidBatchError",
    "InvalidRecordError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaProducer",
    "KafkaTimeoutError",
    "KprodError",
    "KprodTimeoutError",
    "NextStep",
    "PartitionError",
    "Persisted",
    "ProducerClosedError",
    "ProducerFencedError",
    "ProducerOptions",
    "ProducerRecord",
    "ProtocolError",
    "RecordMetadata",
    "RecordTooLargeError",
    "RecordTypeError",
    "SaslAuthenticationError",
    "SerializationError",
    "TlsAuthenticationError",
    "TopicPartition",
    "Transaction",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionTimeoutError",
    "UnfinishedCallError",
    "UnsupportedVersionError",
    "__version__",
]


def __getattr__(name: str) -> type:
    """Import a name of the bulk calls on first use."""
    if name in ("BulkDelivery", "BulkReport"):
        from kprod.bulk import delivery

        return getattr(delivery, name)  # type: ignore[no-any-return]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
