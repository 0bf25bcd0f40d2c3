"""Requests that read topics, and that manage topics, groups and transactions.

Each function makes a ``Question``, which encodes the request and decodes the response.

Source: the message schemas of Apache Kafka 4.2; KIP-98 (aborted transactions), KIP-664 (list and
describe transactions).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from kprod.errors import ProtocolError
from kprod.types import TopicPartition
from kprod.wire.control import MetadataReply, decode_metadata_response, encode_metadata_request
from kprod.wire.framing import begin_request, framed
from kprod.wire.primitives import WireReader, WireWriter
from kprod.wire.transactions import (
    GROUP,
    CoordinatorReply,
    OffsetsReply,
    decode_find_coordinator_response,
    decode_offset_fetch_response,
    encode_find_coordinator_request,
    encode_offset_fetch_request,
)
from kprod.wire.versions import ApiKey, is_flexible

T = TypeVar("T")
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
_CONSUMER = -1
"""The replica id of clients, in requests that brokers also send to each other."""
_NULL = -1


class Question(NamedTuple, Generic[T]):
    """A request, and how to decode its response.

    ``encode`` takes version, correlation id and client id, and returns the whole frame. ``decode``
    takes version and body, and returns the answer and its ``throttle_time_ms``; it raises only
    ProtocolError.
    """

    api: ApiKey
    encode: Callable[[int, int, str], bytes]
    decode: Callable[[int, memoryview], tuple[T, int]]


def _question(
    api: ApiKey, write: Callable[[WireWriter, int], None], read: Callable[[WireReader, int], T]
) -> Question[T]:
    """A question whose response begins with the throttle time, as nearly all responses do."""

    def encode(version: int, correlation_id: int, client_id: str) -> bytes:
        out = begin_request(api, version, correlation_id, client_id)
        write(out, version)
        return framed(out)

    def decode(version: int, body: memoryview) -> tuple[T, int]:
        subject = f"{api.name} v{version} response"
        reader = WireReader(body, subject, flexible=is_flexible(api, version))
        throttle_ms = reader.int32()
        answer = read(reader, version)
        reader.skip_tags()
        return answer, throttle_ms

    return Question(api, encode, decode)


def _single(question: Question[list[T]]) -> Question[T]:
    """A question about a single item: a response about none or several is invalid."""

    def decode(version: int, body: memoryview) -> tuple[T, int]:
        found, throttle_ms = question.decode(version, body)
        if len(found) != 1:
            what = f"{question.api.name} v{version} response"
            raise ProtocolError(f"{what}: {len(found)} results for one that was asked for")
        return found[0], throttle_ms

    return Question(question.api, question.encode, decode)


def _text(reader: WireReader) -> str:
    """A string for programs: complete and unchanged; empty for null."""
    return (reader.nullable_raw() or b"").decode(errors="replace")


def _one_partition(out: WireWriter, topic: str, partition: int) -> None:
    """The start of an array with one topic and one partition."""
    out.array(1)
    out.string(topic)
    out.array(1)
    out.pack(_INT32, partition)


# Metadata, FindCoordinator, OffsetFetch: as the producer asks for them -------------------------


def metadata(topics: Sequence[str] | None) -> Question[MetadataReply]:
    """The brokers, and these topics: None for all, () for none. Never creates a topic."""

    def decode(version: int, body: memoryview) -> tuple[MetadataReply, int]:
        reply = decode_metadata_response(version, body, topics)
        return reply, reply.throttle_ms

    encode = partial(encode_metadata_request, topics=topics, allow_auto_create=False)
    return Question(ApiKey.METADATA, encode, decode)


def group_coordinator(group: str) -> Question[CoordinatorReply]:
    """The coordinator of a group."""

    def decode(version: int, body: memoryview) -> tuple[CoordinatorReply, int]:
        reply = decode_find_coordinator_response(version, body)
        return reply, reply.throttle_ms

    encode = partial(encode_find_coordinator_request, key=group, kind=GROUP)
    return Question(ApiKey.FIND_COORDINATOR, encode, decode)


def group_offsets(
    group: str, topics: Mapping[str, Sequence[int]] | None, *, stable: bool
) -> Question[OffsetsReply]:
    """The committed offsets of a group.

    If ``topics`` is None: those of all partitions that have one. If ``stable``, a partition with an
    offset in an open transaction has an error instead.
    """

    def decode(version: int, body: memoryview) -> tuple[OffsetsReply, int]:
        reply = decode_offset_fetch_response(version, body)
        return reply, reply.throttle_ms

    encode = partial(encode_offset_fetch_request, group_id=group, topics=topics, stable=stable)
    return Question(ApiKey.OFFSET_FETCH, encode, decode)


# Fetch and ListOffsets ------------------------------------------------------------------------

_FETCH = struct.Struct(">iiiib")  # replica, wait in ms, least bytes, most bytes, isolation
_FETCHED = struct.Struct(">hqq")  # error, high watermark, last stable offset
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_SESSION = struct.Struct(">hi")  # error, id
_NO_SESSION = struct.Struct(">ii")  # id, epoch
_START_OFFSET_FROM = 5
_SESSION_FROM = 7
_LEADER_EPOCH_FROM = 9
_RACK_FROM = 11
_SMALLEST_FETCHED = 12


class FetchedPartition(NamedTuple):
    """The result of Fetch for a partition. ``records`` may end with an incomplete batch.

    ``aborted`` contains the producer id and first offset of aborted transactions. A broker that
    throttles the client answers without the partition (KIP-219): the two offsets are -1 then, and
    there are no records. ``error_code`` may also be that of the whole request.
    """

    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted: Sequence[tuple[int, int]]
    records: memoryview


def fetch(
    topic: str, partition: int, offset: int, *, most: int, wait_ms: int, committed: bool
) -> Question[FetchedPartition]:
    """Batches of about ``most`` bytes, beginning with the one that contains ``offset``.

    If there are none, the broker waits for them, at most ``wait_ms``.
    """

    def write(out: WireWriter, version: int) -> None:
        out.pack(_FETCH, _CONSUMER, wait_ms, 1, most, committed)
        if version >= _SESSION_FROM:
            out.pack(_NO_SESSION, 0, -1)
        _one_partition(out, topic, partition)
        if version >= _LEADER_EPOCH_FROM:
            out.pack(_INT32, -1)
        out.pack(_INT64, offset)
        if version >= _START_OFFSET_FROM:
            out.pack(_INT64, -1)
        out.pack(_INT32, most)
        if version >= _SESSION_FROM:
            out.array(0)  # topics that the session forgets
        if version >= _RACK_FROM:
            out.string("")

    def read(reader: WireReader, version: int) -> list[FetchedPartition]:
        error_code = reader.unpack(_SESSION)[0] if version >= _SESSION_FROM else 0
        found = []
        for _ in range(reader.array(6)):
            reader.string()
            count = reader.array(_SMALLEST_FETCHED)
            found += [_fetched(reader, version) for _ in range(count)]
        if error_code or not found:
            return [FetchedPartition(error_code, -1, -1, (), memoryview(b""))]
        return found

    return _single(_question(ApiKey.FETCH, write, read))


def _fetched(reader: WireReader, version: int) -> FetchedPartition:
    reader.int32()  # its number
    error_code, high_watermark, last_stable_offset = reader.unpack(_FETCHED)
    if version >= _START_OFFSET_FROM:
        reader.skip(8)
    count = reader.array(_ABORTED.size, nullable=True)
    aborted = [reader.unpack(_ABORTED) for _ in range(count)]
    if version >= _RACK_FROM:
        reader.skip(4)  # the replica to read from
    records = reader.nullable_bytes()
    return FetchedPartition(error_code, high_watermark, last_stable_offset, aborted, records)


_LISTED = struct.Struct(">ihqq")  # partition, error, timestamp, offset
EARLIEST, LATEST = -2, -1
"""Timestamps that stand for the first record, and for the end."""


def list_offset(
    topic: str, partition: int, timestamp: int, *, committed: bool
) -> Question[tuple[int, int]]:
    """Error code, and offset of the first record at or after ``timestamp``; -1 if there is none."""

    def write(out: WireWriter, _: int) -> None:
        out.pack(_INT32, _CONSUMER)
        out.raw(bytes((committed,)))
        _one_partition(out, topic, partition)
        out.pack(_INT64, timestamp)

    def read(reader: WireReader, _: int) -> list[tuple[int, int]]:
        found = []
        for _topic in range(reader.array(6)):
            reader.string()
            for _partition in range(reader.array(_LISTED.size)):
                _, error_code, _, offset = reader.unpack(_LISTED)
                found.append((error_code, offset))
        return found

    return _single(_question(ApiKey.LIST_OFFSETS, write, read))


# OffsetCommit ---------------------------------------------------------------------------------

_COMMIT = struct.Struct(">iq")  # partition, offset
_COMMITTED = struct.Struct(">ih")  # partition, error


def commit_offsets(group: str, topic: str, offsets: Mapping[int, int]) -> Question[list[int]]:
    """Commit offsets as a simple consumer, without a member id. The answer contains error codes."""

    def write(out: WireWriter, _: int) -> None:
        out.string(group)
        out.pack(_INT32, -1)  # generation
        out.string("")  # member
        out.pack(_INT64, -1)  # retention: the broker's
        out.array(1)
        out.string(topic)
        out.array(len(offsets))
        for partition, offset in offsets.items():
            out.pack(_COMMIT, partition, offset)
            out.string("")

    def read(reader: WireReader, _: int) -> list[int]:
        found = []
        for _topic in range(reader.array(6)):
            reader.string()
            found += [reader.unpack(_COMMITTED)[1] for _ in range(reader.array(_COMMITTED.size))]
        return found

    return _question(ApiKey.OFFSET_COMMIT, write, read)


# CreateTopics, DeleteTopics, DescribeConfigs ----------------------------------------------------

_SIZES = struct.Struct(">ih")  # partitions, replicas
_OF_A_TOPIC = 2  # org.apache.kafka.common.config.ConfigResource.Type
_SET_FOR_TOPIC = 1  # DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG


class Refusal(NamedTuple):
    """The brokers' result for a topic; error code 0 for success."""

    error_code: int
    message: str


def create_topic(
    name: str, partitions: int, replicas: int, options: Mapping[str, str], timeout_ms: int
) -> Question[Refusal]:
    """Create a topic. For ``partitions`` and ``replicas``, -1 means the brokers' default."""

    def write(out: WireWriter, _: int) -> None:
        out.array(1)
        out.string(name)
        out.pack(_SIZES, partitions, replicas)
        out.array(0)  # assignments
        out.array(len(options))
        for option, value in options.items():
            out.string(option)
            out.string(value)
        out.pack(_INT32, timeout_ms)
        out.raw(b"\x00")  # do it

    def read(reader: WireReader, _: int) -> list[Refusal]:
        found = []
        for _topic in range(reader.array(6)):
            reader.string()
            found.append(Refusal(reader.int16(), reader.nullable_string() or ""))
        return found

    return _single(_question(ApiKey.CREATE_TOPICS, write, read))


def delete_topic(name: str, timeout_ms: int) -> Question[Refusal]:
    """Delete a topic with all its records."""

    def write(out: WireWriter, _: int) -> None:
        out.array(1)
        out.string(name)
        out.pack(_INT32, timeout_ms)

    def read(reader: WireReader, _: int) -> list[Refusal]:
        found = []
        for _topic in range(reader.array(4)):
            reader.string()
            found.append(Refusal(reader.int16(), ""))
        return found

    return _single(_question(ApiKey.DELETE_TOPICS, write, read))


def topic_options(name: str) -> Question[tuple[Refusal, dict[str, str]]]:
    """The topic's own options, with stars for secret values."""

    def write(out: WireWriter, _: int) -> None:
        out.array(1)
        out.raw(bytes((_OF_A_TOPIC,)))
        out.string(name)
        out.array(_NULL)  # all of them
        out.raw(b"\x00")  # without synonyms

    def read(reader: WireReader, _: int) -> list[tuple[Refusal, dict[str, str]]]:
        found = []
        for _resource in range(reader.array(11)):
            refusal = Refusal(reader.int16(), reader.nullable_string() or "")
            reader.skip(1)
            reader.string()
            options = [_option(reader) for _ in range(reader.array(11))]
            found.append((refusal, dict(filter(None, options))))
        return found

    return _single(_question(ApiKey.DESCRIBE_CONFIGS, write, read))


_OPTION = struct.Struct(">?b?")  # read-only, source, secret


def _option(reader: WireReader) -> tuple[str, str] | None:
    name, value = _text(reader), _text(reader)
    _, source, secret = reader.unpack(_OPTION)
    for _ in range(reader.array(5)):
        reader.string()
        reader.nullable_string()
        reader.skip(1)
    return (name, "***" if secret else value) if source == _SET_FOR_TOPIC else None


# ListTransactions, DescribeTransactions ---------------------------------------------------------

_STATE = struct.Struct(">iqqh")  # time-out in ms, start, producer id, epoch


class TransactionState(NamedTuple):
    """A transaction as its coordinator describes it; ``started_ms`` is -1 if it has not started."""

    error_code: int
    transactional_id: str
    state: str
    timeout_ms: int
    started_ms: int
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


class TransactionList(NamedTuple):
    """The transactional ids that a broker coordinates."""

    error_code: int
    transactional_ids: list[str]


def list_transactions(states: Sequence[str]) -> Question[TransactionList]:
    """The transactions in one of these states that a broker coordinates."""

    def write(out: WireWriter, _: int) -> None:
        out.array(len(states))
        for state in states:
            out.string(state)
        out.array(0)  # producer ids

    def read(reader: WireReader, _: int) -> TransactionList:
        error_code = reader.int16()
        for _unknown in range(reader.array(1)):
            reader.string()
        found = []
        for _listed in range(reader.array(11)):
            found.append(_text(reader))
            reader.skip(8)
            reader.string()
            reader.skip_tags()
        return TransactionList(error_code, found)

    return _question(ApiKey.LIST_TRANSACTIONS, write, read)


def describe_transactions(names: Sequence[str]) -> Question[list[TransactionState]]:
    """The transactions with these transactional ids.

    Send it to the broker that coordinates them.
    """

    def write(out: WireWriter, _: int) -> None:
        out.array(len(names))
        for name in names:
            out.string(name)

    def read(reader: WireReader, _: int) -> list[TransactionState]:
        return [_state(reader) for _ in range(reader.array(28))]

    return _question(ApiKey.DESCRIBE_TRANSACTIONS, write, read)


def _state(reader: WireReader) -> TransactionState:
    error_code, name, state = reader.int16(), _text(reader), reader.string()
    timeout_ms, started_ms, producer_id, epoch = reader.unpack(_STATE)
    partitions: list[TopicPartition] = []
    for _ in range(reader.array(3)):
        topic = reader.string()
        partitions += [TopicPartition(topic, number) for number in sorted(reader.int32s())]
        reader.skip_tags()
    reader.skip_tags()
    producer = producer_id, epoch
    return TransactionState(
        error_code, name, state, timeout_ms, started_ms, *producer, tuple(partitions)
    )
