"""Produce: the request that carries the records, and its response.

Requests are framed around views of the batches, which are not copied. Source: ProduceRequest.json
and ProduceResponse.json of Apache Kafka 4.2; KIP-951 for leader hints, KIP-516 for topic ids.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kprod.errors import ProtocolError, UnsupportedVersionError
from kprod.wire.endpoint import BrokerEndpoint
from kprod.wire.framing import encode_request_header
from kprod.wire.versions import ApiKey, is_flexible
from kprod.wire.writer import WireWriter
from kprod_ext import frame_produce, read_produce_response

__all__ = [
    "BrokerEndpoint",
    "PartitionBatch",
    "PartitionResponse",
    "ProduceResponse",
    "decode_produce_response",
    "encode_produce_request",
]

_TOPIC_IDS_FROM = 13

_FRAME_SIZE = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")


class PartitionBatch(NamedTuple):
    """One finished record batch and where it goes. ``topic_id`` is needed from version 13 on."""

    topic: str
    topic_id: bytes | None
    partition: int
    records: memoryview


def encode_produce_request(
    version: int,
    correlation_id: int,
    client_id: str,
    *,
    acks: int,
    timeout_ms: int,
    batches: Sequence[PartitionBatch],
    transactional_id: str | None = None,
) -> list[bytes | memoryview]:
    """A whole frame, size prefix included, as pieces to be sent in order.

    The record views of ``batches`` are among the pieces as they are: their memory must stay as it
    is until the request has ended. Batches are grouped by topic, topics in first-seen order.
    Raises UnsupportedVersionError when the version needs a topic id that a batch does not have.
    """
    topics = [
        (_topic_name(version, topic), members)
        for topic, members in _by_topic(version, batches).items()
    ]
    head = _head(version, client_id, acks, timeout_ms, transactional_id)
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
    version: int, batches: Sequence[PartitionBatch]
) -> dict[str | bytes, list[PartitionBatch]]:
    """The batches under what identifies their topic in this version."""
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
    return topics


class PartitionResponse(NamedTuple):
    """What became of one batch.

    ``topic`` is None from version 13 on, ``topic_id`` before. ``base_offset`` is -1 on errors,
    ``log_append_time_ms`` (milliseconds since the epoch) is -1 unless the broker set it,
    ``log_start_offset`` is -1 when not told. ``record_errors`` holds (index in the batch, message).
    ``leader_id`` and ``leader_epoch`` are the broker's hint, -1 when there is none.
    """

    topic: str | None
    topic_id: bytes | None
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[tuple[int, str | None]]
    error_message: str | None
    leader_id: int
    leader_epoch: int


@dataclass(slots=True)
class ProduceResponse:
    """Every partition's result in the broker's order, and the brokers it names as leaders."""

    partitions: list[PartitionResponse]
    throttle_ms: int
    brokers: list[BrokerEndpoint]


def decode_produce_response(version: int, body: memoryview) -> ProduceResponse:
    """Read the body of a response of version 3 to 13. Raises ProtocolError, and nothing else.

    Unknown tagged fields and bytes behind the body are ignored, as in Kafka's own clients.
    """
    try:
        results, throttle_ms, endpoints = read_produce_response(version, body)
    except ValueError as error:
        raise ProtocolError(f"PRODUCE v{version} response: {error}") from None
    partitions = [PartitionResponse._make(result) for result in results]
    brokers = [BrokerEndpoint(*endpoint) for endpoint in endpoints]
    return ProduceResponse(partitions, throttle_ms, brokers)
