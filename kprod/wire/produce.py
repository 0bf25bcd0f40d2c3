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
from uuid import UUID

from kprod.errors import UnsupportedVersionError
from kprod.wire.endpoint import BrokerEndpoint
from kprod.wire.framing import encode_request_header
from kprod.wire.reader import WireReader
from kprod.wire.versions import ApiKey, is_flexible
from kprod.wire.writer import WireWriter

__all__ = [
    "BrokerEndpoint",
    "PartitionBatch",
    "PartitionResponse",
    "ProduceResponse",
    "decode_produce_response",
    "encode_produce_request",
]

_LOG_START_FROM = 5
_RECORD_ERRORS_FROM = 8
_LEADER_HINTS_FROM = 10
_TOPIC_IDS_FROM = 13

_FRAME_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = 8  # behind the frame's size, the API and its version
_PARTITION = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")

_RESULT_BEFORE_LOG_START = struct.Struct(">ihqq")  # partition, error, base offset, append time
_RESULT = struct.Struct(">ihqqq")  # ... and the log's start offset
_LEADER = struct.Struct(">ii")  # node id, leader epoch

_SMALLEST_TOPIC = 2  # bytes: empty strings and arrays
_SMALLEST_RECORD_ERROR = 5
_SMALLEST_ENDPOINT = 11


class PartitionBatch(NamedTuple):
    """One finished record batch and where it goes. ``topic_id`` is needed from version 13 on."""

    topic: str
    topic_id: UUID | None
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
    out = WireWriter(flexible=is_flexible(ApiKey.PRODUCE, version))
    out.raw(_head(version, client_id, acks, timeout_ms, transactional_id))
    topics = _by_topic(version, batches)
    out.array(len(topics))
    pieces: list[bytes | memoryview] = []
    for topic, members in topics.items():
        out.raw(_topic_name(version, topic))
        _put_partitions(out, members, pieces)
        out.no_tags()
    out.no_tags()
    pieces.append(out.take())
    first = bytearray(pieces[0])
    _FRAME_SIZE.pack_into(first, 0, sum(map(len, pieces)) - _FRAME_SIZE.size)
    _CORRELATION_ID.pack_into(first, _CORRELATION_ID_AT, correlation_id)
    pieces[0] = bytes(first)
    return pieces


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
def _topic_name(version: int, topic: str | UUID) -> bytes:
    out = WireWriter(flexible=is_flexible(ApiKey.PRODUCE, version))
    if isinstance(topic, UUID):
        out.uuid(topic)
    else:
        out.string(topic)
    return out.take()


def _by_topic(
    version: int, batches: Sequence[PartitionBatch]
) -> dict[str | UUID, list[PartitionBatch]]:
    """The batches under what identifies their topic in this version."""
    topics: dict[str | UUID, list[PartitionBatch]] = {}
    for batch in batches:
        topic: str | UUID = batch.topic
        if version >= _TOPIC_IDS_FROM:
            if batch.topic_id is None:
                raise UnsupportedVersionError(
                    f"PRODUCE: version {version} names topics by id, and that of "
                    f"{batch.topic!r} is not known"
                )
            topic = batch.topic_id
        topics.setdefault(topic, []).append(batch)
    return topics


def _put_partitions(
    out: WireWriter, members: list[PartitionBatch], pieces: list[bytes | memoryview]
) -> None:
    out.array(len(members))
    for batch in members:
        out.pack(_PARTITION, batch.partition)
        out.records(batch.records.nbytes)
        pieces += (out.take(), batch.records)
        out.no_tags()


@dataclass(slots=True)
class PartitionResponse:
    """What became of one batch.

    ``topic`` is None from version 13 on, ``topic_id`` before. ``base_offset`` is -1 on errors,
    ``log_append_time_ms`` (milliseconds since the epoch) is -1 unless the broker set it,
    ``log_start_offset`` is -1 when not told. ``record_errors`` holds (index in the batch, message).
    ``leader_id`` and ``leader_epoch`` are the broker's hint, -1 when there is none.
    """

    topic: str | None
    topic_id: UUID | None
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
    reader = WireReader(
        body, f"PRODUCE v{version} response", flexible=is_flexible(ApiKey.PRODUCE, version)
    )
    partitions: list[PartitionResponse] = []
    for _ in range(reader.array(_SMALLEST_TOPIC)):
        topic, topic_id = _topic(version, reader)
        partitions += [
            _partition(version, reader, topic, topic_id)
            for _ in range(reader.array(_RESULT_BEFORE_LOG_START.size))
        ]
        reader.skip_tags()
    throttle_ms = reader.int32()
    brokers: list[BrokerEndpoint] = []
    for tag, field in reader.tags():
        if tag == 0 and version >= _LEADER_HINTS_FROM:
            brokers = _endpoints(field)
    return ProduceResponse(partitions, throttle_ms, brokers)


def _topic(version: int, reader: WireReader) -> tuple[str | None, UUID | None]:
    if version >= _TOPIC_IDS_FROM:
        return None, reader.uuid()
    return reader.string(), None


def _partition(
    version: int, reader: WireReader, topic: str | None, topic_id: UUID | None
) -> PartitionResponse:
    if version >= _LOG_START_FROM:
        partition, error, base_offset, append_time, log_start = reader.unpack(_RESULT)
    else:
        partition, error, base_offset, append_time = reader.unpack(_RESULT_BEFORE_LOG_START)
        log_start = -1
    record_errors: list[tuple[int, str | None]] = []
    message = None
    if version >= _RECORD_ERRORS_FROM:
        record_errors = _record_errors(reader)
        message = reader.nullable_string()
    leader_id = leader_epoch = -1
    for tag, field in reader.tags():
        if tag == 0 and version >= _LEADER_HINTS_FROM:
            leader_id, leader_epoch = field.unpack(_LEADER)
            field.skip_tags()
    return PartitionResponse(
        topic,
        topic_id,
        partition,
        error,
        base_offset,
        append_time,
        log_start,
        record_errors,
        message,
        leader_id,
        leader_epoch,
    )


def _record_errors(reader: WireReader) -> list[tuple[int, str | None]]:
    errors = []
    for _ in range(reader.array(_SMALLEST_RECORD_ERROR)):
        errors.append((reader.int32(), reader.nullable_string()))
        reader.skip_tags()
    return errors


def _endpoints(reader: WireReader) -> list[BrokerEndpoint]:
    brokers = []
    for _ in range(reader.array(_SMALLEST_ENDPOINT)):
        brokers.append(
            BrokerEndpoint(
                reader.int32(), reader.string(), reader.int32(), reader.nullable_string()
            )
        )
        reader.skip_tags()
    return brokers
