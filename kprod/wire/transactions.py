"""The requests of a transactional producer to its coordinators.

Source: the message schemas of Apache Kafka 4.2; KIP-98, KIP-447 (member of a group, stable
offsets), KIP-890.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from kprod.errors import ProtocolError
from kprod.wire.framing import begin_request, framed
from kprod.wire.primitives import UNLIMITED, WireReader, WireWriter
from kprod.wire.versions import ApiKey, is_flexible

_INT32 = struct.Struct(">i")
_PRODUCER = struct.Struct(">qh")  # id, epoch
_THROTTLE_AND_ERROR = struct.Struct(">ih")
_PARTITION_RESULT = struct.Struct(">ih")

GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""

PartitionResults = list[tuple[str, int, int]]
"""Topic, partition and error code."""


def _body(api: ApiKey, version: int, body: memoryview) -> WireReader:
    flexible = is_flexible(api, version)
    return WireReader(body, _subject(api, version), flexible=flexible)


@cache
def _subject(api: ApiKey, version: int) -> str:
    return f"{api.name} v{version} response"


# FindCoordinator ------------------------------------------------------------------------------

_BATCHED_FROM = 4
_SMALLEST_COORDINATOR = 4 + 4 + 2 + 3


class CoordinatorReply(NamedTuple):
    """The coordinator. ``node_id`` is -1 if ``error_code`` is not 0."""

    error_code: int
    error_message: str | None
    node_id: int
    throttle_ms: int


def encode_find_coordinator_request(
    version: int, correlation_id: int, client_id: str, key: str, kind: int
) -> bytes:
    """A whole frame of version 1 to 6. ``kind`` is GROUP or TRANSACTION.

    ``key`` is the id of the group or the transactional id.
    """
    out = begin_request(ApiKey.FIND_COORDINATOR, version, correlation_id, client_id)
    if version < _BATCHED_FROM:
        out.string(key)
    out.raw(bytes((kind,)))
    if version >= _BATCHED_FROM:
        out.array(1)
        out.string(key)
    return framed(out)


def decode_find_coordinator_response(version: int, body: memoryview) -> CoordinatorReply:
    """Read the answer for the one requested key. Raises ProtocolError, and nothing else."""
    reader = _body(ApiKey.FIND_COORDINATOR, version, body)
    throttle_ms = reader.int32()
    if version < _BATCHED_FROM:
        error_code, message = reader.int16(), reader.nullable_string()
        node_id = _endpoint(reader)
    else:
        found = reader.array(_SMALLEST_COORDINATOR)
        if found != 1:
            raise ProtocolError(f"FIND_COORDINATOR v{version} response: {found} keys for one")
        reader.string()  # the key
        node_id = _endpoint(reader)
        error_code, message = reader.int16(), reader.nullable_string()
        reader.skip_tags()
    reader.skip_tags()
    return CoordinatorReply(error_code, message, node_id, throttle_ms)


def _endpoint(reader: WireReader) -> int:
    node_id = reader.int32()
    reader.string()  # host
    reader.int32()  # port
    return node_id


# AddPartitionsToTxn ---------------------------------------------------------------------------

_SMALLEST_TOPIC = 3


class PartitionsReply(NamedTuple):
    """The error code of each partition."""

    results: PartitionResults
    throttle_ms: int


def encode_add_partitions_request(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str,
    producer: tuple[int, int],
    topics: Mapping[str, Sequence[int]],
) -> bytes:
    """A whole frame of version 0 to 3. ``producer`` is id and epoch."""
    out = begin_request(ApiKey.ADD_PARTITIONS_TO_TXN, version, correlation_id, client_id)
    out.string(transactional_id)
    out.pack(_PRODUCER, *producer)
    out.array(len(topics))
    for topic, partitions in topics.items():
        out.string(topic)
        out.array(len(partitions))
        for partition in partitions:
            out.pack(_INT32, partition)
        out.no_tags()
    return framed(out)


def decode_add_partitions_response(
    version: int, body: memoryview, asked: int = UNLIMITED
) -> PartitionsReply:
    """Read the body of a response of version 0 to 3. Raises ProtocolError, and nothing else.

    More than ``asked`` partitions are refused.
    """
    reader = _body(ApiKey.ADD_PARTITIONS_TO_TXN, version, body)
    throttle_ms = reader.int32()
    return PartitionsReply(_results(reader, asked), throttle_ms)


def _results(reader: WireReader, asked: int) -> PartitionResults:
    results: PartitionResults = []
    for _ in range(reader.array(_SMALLEST_TOPIC, asked)):
        topic = reader.string()
        for _ in range(reader.array(_PARTITION_RESULT.size, asked - len(results))):
            partition, code = reader.unpack(_PARTITION_RESULT)
            reader.skip_tags()
            results.append((topic, partition, code))
        reader.skip_tags()
    reader.skip_tags()
    return results


# AddOffsetsToTxn ------------------------------------------------------------------------------


class CodeReply(NamedTuple):
    """A response with only an error code."""

    error_code: int
    throttle_ms: int


def encode_add_offsets_request(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str,
    producer: tuple[int, int],
    group_id: str,
) -> bytes:
    """A whole frame of version 0 to 4."""
    out = begin_request(ApiKey.ADD_OFFSETS_TO_TXN, version, correlation_id, client_id)
    out.string(transactional_id)
    out.pack(_PRODUCER, *producer)
    out.string(group_id)
    return framed(out)


def decode_add_offsets_response(version: int, body: memoryview) -> CodeReply:
    """Read the body of a response of version 0 to 4. Raises ProtocolError, and nothing else."""
    reader = _body(ApiKey.ADD_OFFSETS_TO_TXN, version, body)
    throttle_ms, error_code = reader.unpack(_THROTTLE_AND_ERROR)
    reader.skip_tags()
    return CodeReply(error_code, throttle_ms)


# TxnOffsetCommit ------------------------------------------------------------------------------

_LEADER_EPOCH_FROM = 2
MEMBER_FROM = 3
_OFFSET = struct.Struct(">iq")


class OffsetToCommit(NamedTuple):
    """A group's position in one partition: the next offset to read."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class GroupMetadata(NamedTuple):
    """A consumer group, and the member that commits (KIP-447).

    If ``generation_id`` and ``member_id`` are given, the transaction of a member that the group has
    removed fails.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def encode_txn_offset_commit_request(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str,
    producer: tuple[int, int],
    member: GroupMetadata,
    offsets: Iterable[OffsetToCommit],
) -> bytes:
    """A whole frame of version 0 to 5. Before version 3 it has no member."""
    out = begin_request(ApiKey.TXN_OFFSET_COMMIT, version, correlation_id, client_id)
    out.string(transactional_id)
    out.string(member.group_id)
    out.pack(_PRODUCER, *producer)
    if version >= MEMBER_FROM:
        out.pack(_INT32, member.generation_id)
        out.string(member.member_id)
        out.nullable_string(member.group_instance_id)
    topics: dict[str, list[OffsetToCommit]] = {}
    for offset in offsets:
        topics.setdefault(offset.topic, []).append(offset)
    out.array(len(topics))
    for topic, of_topic in topics.items():
        out.string(topic)
        out.array(len(of_topic))
        for offset in of_topic:
            _offset(out, version, offset)
        out.no_tags()
    return framed(out)


def _offset(out: WireWriter, version: int, offset: OffsetToCommit) -> None:
    out.pack(_OFFSET, offset.partition, offset.offset)
    if version >= _LEADER_EPOCH_FROM:
        out.pack(_INT32, offset.leader_epoch)
    out.nullable_string(offset.metadata)
    out.no_tags()


def decode_txn_offset_commit_response(
    version: int, body: memoryview, asked: int = UNLIMITED
) -> PartitionsReply:
    """Read the body of a response of version 0 to 5. Raises ProtocolError, and nothing else.

    More than ``asked`` partitions are refused.
    """
    reader = _body(ApiKey.TXN_OFFSET_COMMIT, version, body)
    throttle_ms = reader.int32()
    return PartitionsReply(_results(reader, asked), throttle_ms)


# EndTxn ---------------------------------------------------------------------------------------

_NEXT_PRODUCER_FROM = 5


class EndTxnReply(NamedTuple):
    """``producer`` is the id and epoch to use from now on; None before version 5."""

    error_code: int
    producer: tuple[int, int] | None
    throttle_ms: int


def encode_end_txn_request(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str,
    producer: tuple[int, int],
    committed: bool,
) -> bytes:
    """A whole frame of version 0 to 5."""
    out = begin_request(ApiKey.END_TXN, version, correlation_id, client_id)
    out.string(transactional_id)
    out.pack(_PRODUCER, *producer)
    out.raw(b"\x01" if committed else b"\x00")
    return framed(out)


def decode_end_txn_response(version: int, body: memoryview) -> EndTxnReply:
    """Read the body of a response of version 0 to 5. Raises ProtocolError, and nothing else."""
    reader = _body(ApiKey.END_TXN, version, body)
    throttle_ms, error_code = reader.unpack(_THROTTLE_AND_ERROR)
    producer: tuple[int, int] | None = None
    if version >= _NEXT_PRODUCER_FROM:
        producer_id, epoch = reader.unpack(_PRODUCER)
        if producer_id >= 0 and epoch >= 0:
            producer = producer_id, epoch
    reader.skip_tags()
    return EndTxnReply(error_code, producer, throttle_ms)


_COMMITTED = struct.Struct(">iqi")  # partition, offset, leader epoch
_SMALLEST_PARTITION = _COMMITTED.size + 1 + 2 + 1


class CommittedOffset(NamedTuple):
    """The committed offset of a group for a partition; ``offset`` is -1 if there is none."""

    topic: str
    partition: int
    offset: int
    metadata: bytes
    error_code: int


class OffsetsReply(NamedTuple):
    """The requested partitions, or ``error_code`` for all of them."""

    offsets: list[CommittedOffset]
    error_code: int
    throttle_ms: int


def encode_offset_fetch_request(
    version: int,
    correlation_id: int,
    client_id: str,
    group_id: str,
    topics: Mapping[str, Sequence[int]] | None,
    stable: bool = True,
) -> bytes:
    """A whole frame of version 7, the first that supports waiting for open transactions.

    ``topics`` None asks for every partition that has an offset. With ``stable``, a partition whose
    offset an open transaction may change has an error instead.
    """
    out = begin_request(ApiKey.OFFSET_FETCH, version, correlation_id, client_id)
    out.string(group_id)
    out.array(-1 if topics is None else len(topics))
    for topic, partitions in (topics or {}).items():
        out.string(topic)
        out.array(len(partitions))
        for partition in partitions:
            out.pack(_INT32, partition)
        out.no_tags()
    out.raw(b"\x01" if stable else b"\x00")
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
        offsets += [_committed(reader, topic) for _ in range(count)]
        reader.skip_tags()
    error_code = reader.int16()
    reader.skip_tags()
    return OffsetsReply(offsets, error_code, throttle_ms)


def _committed(reader: WireReader, topic: str) -> CommittedOffset:
    partition, offset, _ = reader.unpack(_COMMITTED)
    metadata = reader.nullable_raw() or b""
    error_code = reader.int16()
    reader.skip_tags()
    return CommittedOffset(topic, partition, offset, metadata, error_code)
