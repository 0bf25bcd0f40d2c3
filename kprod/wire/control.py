"""The control requests of a producer: ApiVersions, Metadata, InitProducerId.

Three small messages, written and read by hand: ``docs/decisions/connections.md`` has the figures.

Source: the message schemas of Apache Kafka 4.2; KIP-511 (ApiVersions), KIP-516 (topic ids).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, overload

from kprod.errors import ErrorCode, ProtocolError
from kprod.types import Broker
from kprod.version import VERSION
from kprod.wire.framing import begin_request, framed
from kprod.wire.primitives import UNLIMITED, WireReader
from kprod.wire.versions import ApiKey, is_flexible

# ApiVersions ----------------------------------------------------------------------------------

_API_RANGE = struct.Struct(">hhh")
_SOFTWARE_FROM = 3
_FEATURES_EPOCH_TAG = 1
_FINALIZED_FEATURES_TAG = 2
_SMALLEST_FEATURE = 6  # an empty name, two levels, no tags
_EPOCH = struct.Struct(">q")
_LEVELS = struct.Struct(">hh")
_NO_FEATURES: Mapping[str, int] = MappingProxyType({})
KPROD = ("kprod", VERSION)


class ApiVersionsReply(NamedTuple):
    """The API versions of a broker, and the features of its cluster.

    ``ranges`` maps an API's number to its first and last version; it may be empty. ``features``
    maps the cluster's finalized features to their levels (KIP-584), as of ``features_epoch``, which
    is -1 if the broker sent none.
    """

    error_code: int
    ranges: dict[int, tuple[int, int]]
    throttle_ms: int
    features: Mapping[str, int] = _NO_FEATURES
    features_epoch: int = -1


def encode_api_versions_request(
    version: int, correlation_id: int, client_id: str, software: tuple[str, str] = KPROD
) -> bytes:
    """A whole frame of version 0 to 4. ``software``: the client's name and version."""
    out = begin_request(ApiKey.API_VERSIONS, version, correlation_id, client_id)
    if version >= _SOFTWARE_FROM:
        for text in software:
            out.string(text)
    return framed(out)


def decode_api_versions_response(version: int, body: memoryview) -> ApiVersionsReply:
    """Read the response to a request of that version. Raises only ProtocolError.

    A broker that does not know the version answers UNSUPPORTED_VERSION (35) in the layout of
    version 0. ``ranges`` then has what could be decoded, perhaps nothing: librdkafka's mock broker
    sends an invalid count. The caller retries with the last version given for API_VERSIONS, or 0.
    """
    subject = f"API_VERSIONS v{version} response"
    flexible = is_flexible(ApiKey.API_VERSIONS, version)
    reader = WireReader(body, subject, flexible=flexible)
    error_code = reader.int16()
    if error_code == ErrorCode.UNSUPPORTED_VERSION:
        return ApiVersionsReply(error_code, _fallback_ranges(reader.rest(), subject), 0)
    ranges = _ranges(reader)
    throttle_ms = reader.int32() if version >= 1 else 0
    features, epoch = _NO_FEATURES, -1
    for tag, field in reader.tags():
        if tag == _FEATURES_EPOCH_TAG:
            (epoch,) = field.unpack(_EPOCH)
        elif tag == _FINALIZED_FEATURES_TAG:
            features = dict(_feature(field) for _ in range(field.array(_SMALLEST_FEATURE)))
    return ApiVersionsReply(error_code, ranges, throttle_ms, features, epoch)


def _feature(reader: WireReader) -> tuple[str, int]:
    """The name of a feature, and its level in the cluster."""
    name = reader.string()
    level, _ = reader.unpack(_LEVELS)
    reader.skip_tags()
    return name, level


def _fallback_ranges(rest: memoryview, subject: str) -> dict[int, tuple[int, int]]:
    try:
        return _ranges(WireReader(rest, subject, flexible=False))
    except ProtocolError:
        return {}


def _ranges(reader: WireReader) -> dict[int, tuple[int, int]]:
    ranges = {}
    for _ in range(reader.array(_API_RANGE.size)):
        api, first, last = reader.unpack(_API_RANGE)
        ranges[api] = (first, last)
        reader.skip_tags()
    return ranges


# Metadata -------------------------------------------------------------------------------------

_SMALLEST_BROKER = 10  # two numbers, two empty strings
_SMALLEST_TOPIC = 5
_OFFLINE_REPLICAS_FROM = 5
_LEADER_EPOCH_FROM = 7
_AUTHORIZED_OPERATIONS_FROM = 8
_CLUSTER_OPERATIONS_UNTIL = 10
_TOPIC_ID_FROM = 10
_NULL_NAME_FROM = 12
_ERROR_CODE_FROM = 13
_NO_TOPIC_ID = bytes(16)
MOST_BROKERS = 5_000
"""Limit of brokers; the largest clusters have some hundreds."""
MOST_PARTITIONS = 200_000
"""Limit of partitions of the requested topics; more than a ZooKeeper cluster should have."""
MOST_UNASKED = 1_000
"""Limit of unrequested topics in a response; brokers should name none."""

_TRUTH = struct.Struct(">?")
_PARTITION = struct.Struct(">hiii")  # error, number, leader, leader epoch
_PARTITION_BEFORE_EPOCH = struct.Struct(">hii")


class PartitionReply(NamedTuple):
    """One partition. ``leader_id`` is -1 without a leader, ``leader_epoch`` -1 if unknown."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: Sequence[int] = ()
    in_sync: Sequence[int] = ()


class NodeLists(Sequence[tuple[int, ...]]):
    """Lists of node ids: four bytes per id and four per list. Not changed once decoded."""

    __slots__ = ("_ends", "_ids")

    def __init__(self, lists: Iterable[Iterable[int]] = ()) -> None:
        self._ids, self._ends = array("i"), array("i")
        for ids in lists:
            self.append(ids)

    def append(self, ids: Iterable[int]) -> None:
        """Add a list, during decoding."""
        self._ids.extend(ids)
        self._ends.append(len(self._ids))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> tuple[int, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[int, ...], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[Any, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        number = range(len(self))[index]
        start = self._ends[number - 1] if number else 0
        return tuple(self._ids[start : self._ends[number]])


class PartitionReplies(Collection[PartitionReply]):
    """The partitions of one topic in the broker's order, 24 bytes each plus four per node.

    A response of a megabyte can have 55,000 of them; as objects they would take 20 times its size.
    """

    __slots__ = ("_numbers", "in_sync", "replicas")

    def __init__(self, replies: Iterable[PartitionReply] = ()) -> None:
        self._numbers = array("i")
        self.replicas, self.in_sync = NodeLists(), NodeLists()
        for *numbers, replicas, in_sync in replies:
            self._numbers.extend(numbers)
            self.replicas.append(replicas)
            self.in_sync.append(in_sync)

    def __len__(self) -> int:
        return len(self.replicas)

    def __iter__(self) -> Iterator[PartitionReply]:
        numbers = iter(self._numbers)
        lists = self.replicas, self.in_sync
        return map(PartitionReply, numbers, numbers, numbers, numbers, *lists)

    def __contains__(self, reply: object) -> bool:
        return any(reply == each for each in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionReplies) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __repr__(self) -> str:
        return f"PartitionReplies({list(self)!r})"


class TopicReply(NamedTuple):
    """One topic. ``name`` may be null from version 12 on, ``topic_id`` is None before 10."""

    error_code: int
    name: str | None
    topic_id: bytes | None
    partitions: PartitionReplies
    internal: bool = False


class MetadataReply(NamedTuple):
    """Brokers, topics and partitions in the broker's order, unvalidated."""

    brokers: list[Broker]
    cluster_id: str | None
    controller_id: int
    topics: list[TopicReply]
    throttle_ms: int
    error_code: int


def encode_metadata_request(
    version: int,
    correlation_id: int,
    client_id: str,
    topics: Sequence[str] | None,
    allow_auto_create: bool,
) -> bytes:
    """A whole frame of version 4 to 13. If ``topics`` is None, it asks for all; if (), for none."""
    out = begin_request(ApiKey.METADATA, version, correlation_id, client_id)
    out.array(-1 if topics is None else len(topics))
    for name in topics or ():
        if version >= _TOPIC_ID_FROM:
            out.raw(_NO_TOPIC_ID)
        out.string(name)
        out.no_tags()
    out.raw(b"\x01" if allow_auto_create else b"\x00")
    if version >= _AUTHORIZED_OPERATIONS_FROM:
        out.raw(b"\x00")  # of the topics
        if version <= _CLUSTER_OPERATIONS_UNTIL:
            out.raw(b"\x00")  # of the cluster
    return framed(out)


def decode_metadata_response(
    version: int, body: memoryview, asked: Collection[str] | None = None
) -> MetadataReply:
    """Read the body of a response of version 4 to 13. Raises ProtocolError, and nothing else.

    ``asked``: the requested topics; None means all. Other topics are ignored, and a response with
    far more topics is refused.
    """
    reader = WireReader(
        body, f"METADATA v{version} response", flexible=is_flexible(ApiKey.METADATA, version)
    )
    throttle_ms = reader.int32()
    brokers = [_broker(reader) for _ in range(reader.array(_SMALLEST_BROKER, MOST_BROKERS))]
    cluster_id = reader.nullable_string()
    controller_id = reader.int32()
    topics = _topics(version, reader, asked)
    if _AUTHORIZED_OPERATIONS_FROM <= version <= _CLUSTER_OPERATIONS_UNTIL:
        reader.skip(4)
    error_code = reader.int16() if version >= _ERROR_CODE_FROM else 0
    reader.skip_tags()
    return MetadataReply(brokers, cluster_id, controller_id, topics, throttle_ms, error_code)


def _topics(version: int, reader: WireReader, asked: Collection[str] | None) -> list[TopicReply]:
    if asked is None:
        most_topics = room = UNLIMITED
    else:
        most_topics, room = len(asked) + MOST_UNASKED, MOST_PARTITIONS
    topics: list[TopicReply] = []
    for _ in range(reader.array(_SMALLEST_TOPIC, most_topics)):
        topic = _topic(version, reader, room)
        room -= len(topic.partitions)
        if asked is None or topic.name in asked:
            topics.append(topic)
    return topics


def _broker(reader: WireReader) -> Broker:
    node_id, host, port = reader.int32(), reader.string(), reader.int32()
    broker = Broker(node_id, host, port, reader.nullable_string())
    reader.skip_tags()
    return broker


def _topic(version: int, reader: WireReader, room: int) -> TopicReply:
    error_code = reader.int16()
    name = reader.nullable_string() if version >= _NULL_NAME_FROM else reader.string()
    topic_id = reader.uuid() if version >= _TOPIC_ID_FROM else None
    (internal,) = reader.unpack(_TRUTH)
    layout = _PARTITION if version >= _LEADER_EPOCH_FROM else _PARTITION_BEFORE_EPOCH
    count = reader.array(layout.size, room)
    partitions = PartitionReplies(_partition(version, reader, layout) for _ in range(count))
    if version >= _AUTHORIZED_OPERATIONS_FROM:
        reader.skip(4)
    reader.skip_tags()
    return TopicReply(error_code, name, topic_id, partitions, internal)


def _partition(version: int, reader: WireReader, layout: struct.Struct) -> PartitionReply:
    numbers = reader.unpack(layout)
    error_code, partition, leader_id = numbers[:3]
    leader_epoch = numbers[3] if version >= _LEADER_EPOCH_FROM else -1
    replicas, in_sync = reader.int32s(), reader.int32s()
    if version >= _OFFLINE_REPLICAS_FROM:
        reader.skip_array(4)
    reader.skip_tags()
    return PartitionReply(error_code, partition, leader_id, leader_epoch, replicas, in_sync)


# InitProducerId -------------------------------------------------------------------------------

_EPOCH_BUMP_FROM = 3
_TIMEOUT = struct.Struct(">i")
_IDENTITY = struct.Struct(">qh")
_PRODUCER = struct.Struct(">ihqh")  # throttle, error, producer id, epoch


class InitProducerIdReply(NamedTuple):
    """A producer id and epoch; both are -1 if ``error_code`` is not 0."""

    error_code: int
    producer_id: int
    producer_epoch: int
    throttle_ms: int


def encode_init_producer_id_request(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str | None = None,
    transaction_timeout_ms: int = 2**31 - 1,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """A whole frame of version 0 to 5.

    From version 3 on, ``producer_id`` and ``producer_epoch`` ask for the next epoch. Give both or
    neither.
    """
    out = begin_request(ApiKey.INIT_PRODUCER_ID, version, correlation_id, client_id)
    out.nullable_string(transactional_id)
    out.pack(_TIMEOUT, transaction_timeout_ms)
    if version >= _EPOCH_BUMP_FROM:
        out.pack(_IDENTITY, producer_id, producer_epoch)
    return framed(out)


def decode_init_producer_id_response(version: int, body: memoryview) -> InitProducerIdReply:
    """Read the body of a response of version 0 to 5. Raises ProtocolError, and nothing else."""
    reader = WireReader(
        body,
        f"INIT_PRODUCER_ID v{version} response",
        flexible=is_flexible(ApiKey.INIT_PRODUCER_ID, version),
    )
    throttle_ms, error_code, producer_id, producer_epoch = reader.unpack(_PRODUCER)
    reader.skip_tags()
    if not error_code and (producer_id < 0 or producer_epoch < 0):
        raise ProtocolError(f"producer id {producer_id}, epoch {producer_epoch} cannot be")
    return InitProducerIdReply(error_code, producer_id, producer_epoch, throttle_ms)
