"""Records, partitions and results: the values that all packages use."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "BytesLike",
    "DeliveryReport",
    "Header",
    "Headers",
    "NextStep",
    "OnCompletion",
    "Persisted",
    "ProducerRecord",
    "RecordMetadata",
    "TopicPartition",
]

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""The result of a serializer: any C-contiguous buffer of bytes."""

Header: TypeAlias = tuple[str, bytes | None]
"""One record header: a text key, and a value that may be null."""

Headers: TypeAlias = Mapping[str, bytes | None] | Sequence[Header]
"""The headers of a record as ``send`` takes them; in a sequence a key may be repeated."""


def owned(data: BytesLike | None) -> bytes | None:
    """The key or value as bytes, which stay the same if the application changes its buffer."""
    return data if data is None or type(data) is bytes else memoryview(data).tobytes()


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Broker(NamedTuple):
    """A broker of the cluster's metadata. Bootstrap addresses have the ids -1, -2, and so on."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        name = f"broker {self.node_id}" if self.node_id >= 0 else "bootstrap broker"
        return f"{name} at {self.host}:{self.port}"


class RecordMetadata(NamedTuple):
    """Where an acknowledged record was stored.

    ``offset`` is -1 if the broker did not return the offset: with ``acks=0``, or if the record was
    already stored by an earlier attempt. ``timestamp`` is in milliseconds since the epoch. It is
    the record's own timestamp, or the broker's append time if the topic is configured for that.
    Sizes are in bytes; -1 means null. ``checksum`` is always None, because v2 batches have one
    checksum per batch. The fields have the order of kafka-python's ``RecordMetadata``.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


OnCompletion: TypeAlias = Callable[[RecordMetadata, Exception | None], object]
"""Called once for each queued record. With an error, the metadata has the offset -1."""


class Persisted(enum.Enum):
    """Whether a failed record is in the log.

    ``NO``: it is not in the log. ``MAYBE``: it may be in the log. With idempotence, it is there at
    most once.
    """

    NO = "no"
    MAYBE = "maybe"


class NextStep(enum.Enum):
    """What to do after a transactional error (the classes of KIP-1050).

    ``ABORT``: abort the transaction, and begin another one. ``RETRY_CALL``: repeat the same call,
    which is still in progress. ``BEGIN_AGAIN``: begin another transaction, because the ``with``
    block has already aborted this one. ``START_AGAIN``: close the producer, create a new one, and
    continue after the last committed transaction. ``CLOSE``: close the producer, and change an
    option or a permission. Until then, a new producer would fail in the same way.
    """

    ABORT = "abort"
    RETRY_CALL = "retry the same call"
    BEGIN_AGAIN = "begin another transaction"
    START_AGAIN = "start again"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as the application passes it to ``send``, before serialization.

    ``timestamp_ms`` is in milliseconds since the epoch; None means the time of ``send``. If
    ``partition`` is None, the partitioner chooses one.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """Counts of the records of a producer since it was created.

    ``delivered`` records were acknowledged. ``failed`` records have an error. ``pending`` records
    have no result yet.
    """

    delivered: int
    failed: int
    pending: int


class ProducerId(NamedTuple):
    """The producer id and epoch of a batch (KIP-98).

    ``transactional``: the batch belongs to a transaction.
    """

    producer_id: int
    epoch: int
    transactional: bool = False
