"""What a producer asks coordinators, as bytes, straight from the protocol's message schemas.

Shares no code with ``kprod.wire``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.model import wire
from tests.simulation.model.wire import BrokerAddress, Builder, Cursor, RequestHeader

Place = tuple[str, int]
"""Topic and partition."""

NOBODY = BrokerAddress(-1, "", -1)
FEATURE = b"\x14transaction.version"  # its length and one


class Who(NamedTuple):
    """A producer, as it says itself. Without an id it has none yet."""

    producer_id: int = -1
    epoch: int = -1


class Question(NamedTuple):
    """One request to a coordinator; what a kind of request does not have is left as it is here.

    ``key`` is the transactional id or the group. ``version`` is that of the request.
    """

    version: int
    key: str
    who: Who = Who()
    places: tuple[Place, ...] = ()
    offsets: tuple[int, ...] = ()
    group: str = ""
    generation: int = -1
    timeout_ms: int = 0
    committed: bool = False
    kind: int = 0


def read(frame: bytes) -> tuple[RequestHeader, Question]:
    """A frame without its size prefix, of one of the requests that have a reader here."""
    header, cursor = wire.read_header(frame)
    question = READERS[header.api](header.version, cursor)
    cursor.tags()
    if not cursor.finished:
        raise ValueError(f"bytes follow request {header.api} v{header.version}")
    return header, question


def _text(cursor: Cursor) -> str:
    return cursor.string() or ""


def _who(cursor: Cursor) -> Who:
    return Who(cursor.number(8), cursor.number(2))


def _find_coordinator(version: int, cursor: Cursor) -> Question:
    if version < 4:
        key = _text(cursor)
        return Question(version, key, kind=cursor.number(1))
    kind = cursor.number(1)
    keys = [_text(cursor) for _ in range(cursor.count())]
    if len(keys) != 1:
        raise ValueError(f"one coordinator is wanted, not those of {keys}")
    return Question(version, keys[0], kind=kind)


def _init_producer_id(version: int, cursor: Cursor) -> Question:
    key, timeout_ms = _text(cursor), cursor.number(4)
    who = _who(cursor) if version >= 3 else Who()
    return Question(version, key, who, timeout_ms=timeout_ms)


def _add_partitions(version: int, cursor: Cursor) -> Question:
    key, who = _text(cursor), _who(cursor)
    places: list[Place] = []
    for _ in range(cursor.count()):
        topic = _text(cursor)
        places += [(topic, cursor.number(4)) for _ in range(cursor.count())]
        cursor.tags()
    return Question(version, key, who, tuple(places))


def _add_offsets(version: int, cursor: Cursor) -> Question:
    return Question(version, _text(cursor), _who(cursor), group=_text(cursor))


def _end_txn(version: int, cursor: Cursor) -> Question:
    return Question(version, _text(cursor), _who(cursor), committed=cursor.number(1) == 1)


def _commit_offsets(version: int, cursor: Cursor) -> Question:
    key, group, who = _text(cursor), _text(cursor), _who(cursor)
    generation = -1
    if version >= 3:
        generation = cursor.number(4)
        cursor.string()  # the member
        cursor.string()  # its group instance id
    found: list[tuple[Place, int]] = []
    for _ in range(cursor.count()):
        topic = _text(cursor)
        for _ in range(cursor.count()):
            place, offset = (topic, cursor.number(4)), cursor.number(8)
            if version >= 2:
                cursor.number(4)  # the leader's epoch
            cursor.string()  # metadata
            cursor.tags()
            found.append((place, offset))
        cursor.tags()
    places, offsets = tuple(place for place, _ in found), tuple(offset for _, offset in found)
    return Question(version, key, who, places, offsets, group, generation)


READERS = {
    wire.FIND_COORDINATOR: _find_coordinator,
    wire.INIT_PRODUCER_ID: _init_producer_id,
    wire.ADD_PARTITIONS: _add_partitions,
    wire.ADD_OFFSETS: _add_offsets,
    wire.END_TXN: _end_txn,
    wire.COMMIT_OFFSETS: _commit_offsets,
}


# Answers --------------------------------------------------------------------------------------


def _begin(header: RequestHeader) -> Builder:
    out = Builder(header.api, header.version, header.correlation_id)
    out.pack("i", 0)  # throttle time
    return out


def _end(out: Builder) -> bytes:
    out.tags()
    return out.frame()


def write_coordinator(header: RequestHeader, key: str, code: int, found: BrokerAddress) -> bytes:
    out = _begin(header)
    if header.version >= 4:
        out.count(1)
        out.string(key)
    else:
        out.pack("h", code)
        out.string(None)
    out.pack("i", found.node_id)
    out.string(found.host)
    out.pack("i", found.port)
    if header.version >= 4:
        out.pack("h", code)
        out.string(None)
        out.tags()
    return _end(out)


def write_code(header: RequestHeader, code: int, who: Who) -> bytes:
    """Of AddOffsetsToTxn, and of EndTxn: ``who`` the producer is from now on."""
    out = _begin(header)
    out.pack("h", code)
    if header.api == wire.END_TXN and header.version >= 5:
        out.pack("qh", *(Who() if code else who))
    return _end(out)


def write_producer_id(header: RequestHeader, code: int, who: Who) -> bytes:
    found = Who() if code else who
    return wire.write_init_producer_id(header.version, header.correlation_id, code, *found)


def write_places(header: RequestHeader, places: Iterable[Place], code: int) -> bytes:
    """Of AddPartitionsToTxn and TxnOffsetCommit."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    out = _begin(header)
    out.count(len(topics))
    for topic, partitions in topics.items():
        out.string(topic)
        out.count(len(partitions))
        for partition in partitions:
            out.pack("ih", partition, code)
            out.tags()
        out.tags()
    return _end(out)


def features(level: int, epoch: int) -> list[tuple[int, bytes]]:
    """The tagged fields of ApiVersions that say which level ``transaction.version`` has."""
    supported = b"\x02" + FEATURE + struct.pack(">hh", 0, 2) + b"\x00"
    finalized = b"\x02" + FEATURE + struct.pack(">hh", level, level) + b"\x00"
    return [(0, supported), (1, struct.pack(">q", epoch)), (2, finalized)]
