"""The broker's side of the wire, straight from the protocol's message schemas.

Shares no code with ``kprod.wire``: every field is written out by hand here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
FIND_COORDINATOR, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, COMMIT_OFFSETS = 10, 24, 25, 26, 28
FLEXIBLE = {
    PRODUCE: 9,
    METADATA: 9,
    FIND_COORDINATOR: 3,
    API_VERSIONS: 3,
    INIT_PRODUCER_ID: 2,
    ADD_PARTITIONS: 3,
    ADD_OFFSETS: 3,
    END_TXN: 3,
    COMMIT_OFFSETS: 3,
}


class Cursor:
    """Reads one request, field by field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.flexible = False

    def take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise ValueError(f"the request ends {size - len(piece)} bytes early")
        self._at += size
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.number(2)
        return None if size < 0 else self.take(size).decode()

    def count(self) -> int:
        return self.uvarint() - 1 if self.flexible else self.number(4)

    def records(self) -> bytes:
        return self.take(self.count())

    def tags(self) -> None:
        if self.flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.take(self.uvarint())

    @property
    def finished(self) -> bool:
        return self._at == len(self._data)


class RequestHeader(NamedTuple):
    api: int
    version: int
    correlation_id: int
    client_id: str | None


def read_header(frame: bytes) -> tuple[RequestHeader, Cursor]:
    """The header of a frame without its size prefix, and a cursor at the body."""
    cursor = Cursor(frame)
    api, version, correlation_id = cursor.number(2), cursor.number(2), cursor.number(4)
    header = RequestHeader(api, version, correlation_id, cursor.string())
    cursor.flexible = version >= FLEXIBLE[api]
    cursor.tags()
    return header, cursor


class PartitionData(NamedTuple):
    """One partition's batch in a Produce request; named by ``topic_id`` from version 13 on."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    records: bytes


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[PartitionData]


def _read_produce(version: int, cursor: Cursor) -> ProduceRequest:
    transactional_id = cursor.string()
    acks, timeout_ms = cursor.number(2), cursor.number(4)
    partitions: list[PartitionData] = []
    for _ in range(cursor.count()):
        topic = cursor.string() if version < 13 else None
        topic_id = UUID(bytes=cursor.take(16)) if version >= 13 else None
        for _ in range(cursor.count()):
            number = cursor.number(4)
            partitions.append(PartitionData(topic, topic_id, number, cursor.records()))
            cursor.tags()
        cursor.tags()
    cursor.tags()
    if not cursor.finished:
        raise ValueError("bytes follow the Produce request")
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _read_metadata(version: int, cursor: Cursor) -> list[str]:
    """The topics asked for."""
    names = []
    for _ in range(max(cursor.count(), 0)):
        if version >= 10:
            cursor.take(16)
        names.append(cursor.string() or "")
        cursor.tags()
    return names


class Request(NamedTuple):
    """One request: ``produce`` and ``topics`` are what Produce and Metadata requests hold."""

    header: RequestHeader
    produce: ProduceRequest | None = None
    topics: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def read_request(frame: bytes) -> Request:
    """A frame without its size prefix.

    The same bytes are read when they leave and when they arrive: the first reading is kept.
    """
    header, cursor = read_header(frame)
    if header.api == PRODUCE:
        return Request(header, produce=_read_produce(header.version, cursor))
    if header.api == METADATA:
        return Request(header, topics=tuple(_read_metadata(header.version, cursor)))
    return Request(header)


class Builder:
    """Writes one response, field by field."""

    def __init__(self, api: int, version: int, correlation_id: int) -> None:
        self._out = bytearray(struct.pack(">i", correlation_id))
        self.flexible = version >= FLEXIBLE[api]
        if self.flexible and api != API_VERSIONS:
            self._out.append(0)  # no tagged fields in the header

    def raw(self, data: bytes) -> None:
        self._out += data

    def pack(self, layout: str, *values: int) -> None:
        self._out += struct.pack(">" + layout, *values)

    def uvarint(self, value: int) -> None:
        while value >= 0x80:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)

    def string(self, text: str | None) -> None:
        data = b"" if text is None else text.encode()
        size = -1 if text is None else len(data)
        if self.flexible:
            self.uvarint(size + 1)
        else:
            self.pack("h", size)
        self._out += data

    def count(self, length: int) -> None:
        if self.flexible:
            self.uvarint(length + 1)
        else:
            self.pack("i", length)

    def tags(self, *fields: tuple[int, bytes]) -> None:
        if not self.flexible:
            return
        self.uvarint(len(fields))
        for number, data in fields:
            self.uvarint(number)
            self.uvarint(len(data))
            self._out += data

    def frame(self) -> bytes:
        return struct.pack(">i", len(self._out)) + bytes(self._out)


@dataclass(slots=True)
class PartitionResult:
    """What a Produce response says about one partition; ``hint``: leader id and epoch."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    code: int = 0
    base_offset: int = -1
    append_time: int = -1
    hint: tuple[int, int] | None = None


def write_produce(
    version: int, correlation_id: int, results: list[PartitionResult], throttle_ms: int
) -> bytes:
    out = Builder(PRODUCE, version, correlation_id)
    topics: dict[object, list[PartitionResult]] = {}
    for result in results:
        topics.setdefault(result.topic_id if version >= 13 else result.topic, []).append(result)
    out.count(len(topics))
    for members in topics.values():
        if version >= 13:
            out.raw((members[0].topic_id or UUID(int=0)).bytes)
        else:
            out.string(members[0].topic)
        out.count(len(members))
        for result in members:
            _write_result(version, out, result)
        out.tags()
    out.pack("i", throttle_ms)
    out.tags()
    return out.frame()


def _write_result(version: int, out: Builder, result: PartitionResult) -> None:
    out.pack("ihqq", result.partition, result.code, result.base_offset, result.append_time)
    if version >= 5:
        out.pack("q", 0 if result.code == 0 else -1)
    if version >= 8:
        out.count(0)
        out.string(None)
    if version >= 10 and result.hint is not None:
        out.tags((0, struct.pack(">iib", *result.hint, 0)))
    else:
        out.tags()


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int


class PartitionMetadata(NamedTuple):
    code: int
    leader: int
    leader_epoch: int


class TopicMetadata(NamedTuple):
    code: int
    name: str
    topic_id: UUID
    partitions: tuple[PartitionMetadata, ...]


def write_metadata(
    version: int, correlation_id: int, brokers: list[BrokerAddress], topics: list[TopicMetadata]
) -> bytes:
    out = Builder(METADATA, version, correlation_id)
    out.pack("i", 0)
    out.count(len(brokers))
    for broker in brokers:
        out.pack("i", broker.node_id)
        out.string(broker.host)
        out.pack("i", broker.port)
        out.string(None)
        out.tags()
    out.string("simulated")
    out.pack("i", brokers[0].node_id if brokers else -1)
    out.count(len(topics))
    for topic in topics:
        _write_topic(version, out, topic)
    if 8 <= version <= 10:
        out.pack("i", -(2**31))
    if version >= 13:
        out.pack("h", 0)
    out.tags()
    return out.frame()


def _write_topic(version: int, out: Builder, topic: TopicMetadata) -> None:
    out.pack("h", topic.code)
    out.string(topic.name)
    if version >= 10:
        out.raw(topic.topic_id.bytes)
    out.pack("b", 0)
    out.count(len(topic.partitions))
    for number, (code, leader, epoch) in enumerate(topic.partitions):
        out.pack("hii", code, number, leader)
        if version >= 7:
            out.pack("i", epoch)
        for _ in range(3 if version >= 5 else 2):
            out.count(0)
        out.tags()
    if version >= 8:
        out.pack("i", -(2**31))
    out.tags()


def write_api_versions(
    version: int,
    correlation_id: int,
    code: int,
    ranges: dict[int, tuple[int, int]],
    features: Sequence[tuple[int, bytes]] = (),
) -> bytes:
    """The last version offered bounds the answer: an unknown one is answered as version 0.

    ``features``: the tagged fields that tell of the cluster's features.
    """
    out = Builder(API_VERSIONS, version, correlation_id)
    out.pack("h", code)
    out.count(len(ranges))
    for api, (first, last) in ranges.items():
        out.pack("hhh", api, first, last)
        out.tags()
    if version >= 1:
        out.pack("i", 0)
    out.tags(*features)
    return out.frame()


def write_init_producer_id(
    version: int, correlation_id: int, code: int, producer_id: int, epoch: int
) -> bytes:
    out = Builder(INIT_PRODUCER_ID, version, correlation_id)
    out.pack("ihqh", 0, code, producer_id, epoch)
    out.tags()
    return out.frame()
