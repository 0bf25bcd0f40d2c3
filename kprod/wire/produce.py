"""Produce: the request that carries the records, and its response.

Requests are framed around views of the batches, which are not copied. Source: ProduceRequest.json
and ProduceResponse.json of Apache Kafka 4.2; KIP-951 for leader hints, KIP-516 for topic ids.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from kprod.errors import ProtocolError, UnsupportedVersionError
from kprod.types import Broker
from kprod.wire.framing import encode_request_header
from kprod.wire.primitives import UNLIMITED, WireWriter
from kprod.wire.versions import ApiKey, is_flexible
from kprod_ext.produce import (
    PartitionBatch,
    PartitionResponse,
    frame_produce,
    read_produce_response,
)

_TOPIC_IDS_FROM = 13
MOST_UNASKED = 10
"""Limit of unrequested partitions in a response; brokers should name none."""

_FRAME_SIZE = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")


def encode_produce_request(
    version: int,
    correlation_id: int,
    client_id: str,
    acks: int,
    timeout_ms: int,
    batches: list[PartitionBatch],
    transactional_id: str | None = None,
) -> list[bytes | memoryview]:
    """A whole frame, including the size prefix, as pieces to be sent in order.

    The pieces include the records of ``batches`` without a copy: their memory must not change until
    the request has ended. Batches are grouped by topic, topics in first-seen order. Raises
    UnsupportedVersionError if the version needs a topic id that a batch does not have.
    """
    head = _head(version, client_id, acks, timeout_ms, transactional_id)
    topics = _by_topic(version, batches)
    return frame_produce(head, version, correlation_id, topics)


@lru_cache(maxsize=64)
def _head(
    version: int, client_id: str, acks: int, timeout_ms: int, transactional_id: str | None
) -> bytes:
    """Everything before the topics, with zeros for the frame's size and the correlation id."""
    out = WireWriter(flexible=is_flexible(ApiKey.PRODUCE, version))
    out.pack(_FRAME_SIZE, 0)
    out.raw(encode_request_header(ApiKey.PRODUCE, version, 0, client_id))
    out.nullable_string(transactional_id)
    out.pack(_ACKS_AND_TIMEOUT, acks, timeout_ms)
    return out.take()


@lru_cache(maxsize=1024)
def _topic_name(version: int, topic: str | bytes) -> bytes:
    out = WireWriter(flexible=is_flexible(ApiKey.PRODUCE, version))
    if isinstance(topic, bytes):
        out.raw(topic)
    else:
        out.string(topic)
    return out.take()


def _by_topic(
    version: int, batches: list[PartitionBatch]
) -> list[tuple[bytes, list[PartitionBatch]]]:
    """The batches by their topic's encoded name or id, depending on the version."""
    topics: dict[str | bytes, list[PartitionBatch]] = {}
    for batch in batches:
        topic: str | bytes = batch.topic
        if version >= _TOPIC_IDS_FROM:
            if batch.topic_id is None:
                raise UnsupportedVersionError(
                    f"PRODUCE: version {version} names topics by id, and that of "
                    f"{batch.topic!r} is not known"
                )
            topic = batch.topic_id
        topics.setdefault(topic, []).append(batch)
    return [(_topic_name(version, topic), members) for topic, members in topics.items()]


class ProduceResponse(NamedTuple):
    """All partitions' results in the broker's order, and the brokers that it names as leaders."""

    partitions: list[PartitionResponse]
    throttle_ms: int
    brokers: list[Broker]


def decode_produce_response(
    version: int, body: memoryview, partitions: int = UNLIMITED, records: int = UNLIMITED
) -> ProduceResponse:
    """Read the body of a response of version 3 to 13. Raises ProtocolError, and nothing else.

    ``partitions`` and ``records`` are those of the request: a response with more records, or with
    far more partitions, is refused. Unknown tagged fields and bytes after the body are ignored, as
    in Kafka's own clients.
    """
    most = partitions + MOST_UNASKED
    try:
        results, throttle_ms, endpoints = read_produce_response(version, body, most, records)
    except ValueError as error:
        raise ProtocolError(f"PRODUCE v{version} response: {error}") from None
    brokers = [Broker(*endpoint) for endpoint in endpoints] if endpoints else []
    return ProduceResponse(results, throttle_ms, brokers)
