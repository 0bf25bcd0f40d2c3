"""The values that travel through every layer: records, partitions, outcomes."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""The result of a serializer: any C-contiguous buffer of bytes."""

Header: TypeAlias = tuple[str, bytes | None]
"""One record header: a text key, and a value that may be null."""

Headers: TypeAlias = Mapping[str, bytes | None] | Sequence[Header]
"""The headers of a record as ``send`` takes them; in a sequence a key may come more than once."""


def owned(data: BytesLike | None) -> bytes | None:
    """The bytes of a key or value, which no later change of the application's buffer reaches."""
    return data if data is None or type(data) is bytes else memoryview(data).tobytes()


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Broker(NamedTuple):
    """One broker as the cluster tells it; bootstrap addresses have the ids -1, -2, ..."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        name = f"broker {self.node_id}" if self.node_id >= 0 else "bootstrap broker"
        return f"{name} at {self.host}:{self.port}"


class RecordMetadata(NamedTuple):
    """Where an acknowledged record was stored (field order of kafka-python's ``RecordMetadata``).

    ``offset`` is -1 when the broker did not tell it (acks=0, or a duplicate it had already stored).
    ``timestamp`` is milliseconds since the epoch: the record's own, or the broker's append time
    when the topic is configured for it. Sizes are bytes, -1 for null. ``checksum`` is always None
    (v2 batches carry one checksum per batch).
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


class Persisted(enum.Enum):
    """Whether a failed record is in the log: ``NO``, or ``MAYBE``, at most once."""

    NO = "no"
    MAYBE = "maybe"


class NextStep(enum.Enum):
    """The next step of an application after an error of a transaction (the classes of KIP-1050).

    ``ABORT``: abort the transaction, and begin another one. ``RETRY_CALL``: call the same method
    again; what it asked for goes on meanwhile. ``START_AGAIN``: close the producer, and let a new
    one go on behind the last committed transaction. ``CLOSE``: close the producer; a new one would
    fail as well until somebody has changed an option, or what the principal may do.
    """

    ABORT = "abort"
    RETRY_CALL = "retry the same call"
    START_AGAIN = "start again"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as the application hands it over, before serialization.

    ``timestamp_ms`` is milliseconds since the epoch; None means "now, at ``send``".
    ``partition`` None lets the partitioner choose.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The outcomes of a producer's records, in counts since the producer was made.

    ``delivered`` were acknowledged, ``failed`` ended in an error, ``pending`` have no outcome yet.
    """

    delivered: int
    failed: int
    pending: int


class ProducerId(NamedTuple):
    """An id and the epoch of that id.

    ``transactional``: what it writes belongs to the transaction that is open (KIP-98).
    """

    producer_id: int
    epoch: int
    transactional: bool = False
