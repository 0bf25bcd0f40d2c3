"""OffsetFetch (9): how far a group has committed, transactions that are open aside (KIP-447)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kprod.wire.message import begin_request, framed
from kprod.wire.reader import UNLIMITED, WireReader
from kprod.wire.versions import ApiKey, is_flexible

_INT32 = struct.Struct(">i")
_OFFSET = struct.Struct(">iqi")  # partition, offset, leader epoch
_SMALLEST_TOPIC = 3
_SMALLEST_PARTITION = _OFFSET.size + 1 + 2 + 1
_STABLE = b"\x01"


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition; ``offset`` is -1 when it has nothing."""

    topic: str
    partition: int
    offset: int
    metadata: bytes
    error_code: int


class OffsetsReply(NamedTuple):
    """Each partition that was asked for, or ``error_code`` for all of them."""

    offsets: list[CommittedOffset]
    error_code: int
    throttle_ms: int


def encode_offset_fetch_request(
    version: int,
    correlation_id: int,
    client_id: str,
    group_id: str,
    topics: Mapping[str, Sequence[int]],
) -> bytes:
    """A whole frame of version 7, which is the first to wait for open transactions."""
    out = begin_request(ApiKey.OFFSET_FETCH, version, correlation_id, client_id)
    out.string(group_id)
    out.array(len(topics))
    for topic, partitions in topics.items():
        out.string(topic)
        out.array(len(partitions))
        for partition in partitions:
            out.pack(_INT32, partition)
        out.no_tags()
    out.raw(_STABLE)
    return framed(out)


def decode_offset_fetch_response(
    version: int, body: memoryview, asked: int = UNLIMITED
) -> OffsetsReply:
    """Read the body of a response of version 7. Raises ProtocolError, and nothing else.

    More than ``asked`` partitions are refused.
    """
    flexible = is_flexible(ApiKey.OFFSET_FETCH, version)
    reader = WireReader(body, f"OFFSET_FETCH v{version} response", flexible=flexible)
    throttle_ms = reader.int32()
    offsets: list[CommittedOffset] = []
    for _ in range(reader.array(_SMALLEST_TOPIC, asked)):
        topic = reader.string()
        count = reader.array(_SMALLEST_PARTITION, asked - len(offsets))
        offsets += [_offset(reader, topic) for _ in range(count)]
        reader.skip_tags()
    error_code = reader.int16()
    reader.skip_tags()
    return OffsetsReply(offsets, error_code, throttle_ms)


def _offset(reader: WireReader, topic: str) -> CommittedOffset:
    partition, offset, _ = reader.unpack(_OFFSET)
    metadata = reader.nullable_raw() or b""
    error_code = reader.int16()
    reader.skip_tags()
    return CommittedOffset(topic, partition, offset, metadata, error_code)
