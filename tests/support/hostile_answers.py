"""Builds broker responses byte by byte, for oversized and unexpected answers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from tests.support.scripted_cluster import Answer, ReceivedRequest, ScriptedBroker

REPLICAS = b"\x04" + struct.pack(">iii", 1, 2, 3)
NOBODY = b"\x01"


def uvarint(number: int) -> bytes:
    """An unsigned number in groups of 7 bits (KIP-482)."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def text(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def array(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return uvarint(len(listed) + 1) + b"".join(listed)


def broker(node_id: int, host: bytes | None = None, port: int = 9092) -> bytes:
    host = b"broker-%d" % node_id if host is None else host
    return struct.pack(">i", node_id) + text(host) + struct.pack(">i", port) + b"\0\0"


def partition(number: int, leader: int = 1, replicas: bytes = REPLICAS) -> bytes:
    return struct.pack(">hiii", 0, number, leader, 0) + replicas + replicas + NOBODY + b"\0"


def topic(name: bytes, partitions: Iterable[bytes]) -> bytes:
    head = struct.pack(">h", 0) + text(name) + bytes(16) + b"\0"
    return head + array(partitions) + struct.pack(">i", 0) + b"\0"


def metadata(brokers: Iterable[bytes], topics: Iterable[bytes], cluster: bytes = b"c") -> bytes:
    head = struct.pack(">i", 0) + array(brokers) + text(cluster) + struct.pack(">i", 1)
    return head + array(topics) + b"\0"


def record_error(index: int, message: bytes = b"") -> bytes:
    return struct.pack(">i", index) + text(message) + b"\0"


def result(number: int, code: int = 0, errors: Iterable[bytes] = (), message: bytes = b"") -> bytes:
    """The result of one partition, of Produce 9 to 13."""
    head = struct.pack(">ihqqq", number, code, 0 if code == 0 else -1, -1, 0)
    return head + array(errors) + text(message) + b"\0"


def produced(topics: Iterable[tuple[bytes, Iterable[bytes]]], tags: bytes = b"\0") -> bytes:
    """The body of Produce 9 to 12: results by topic."""
    responses = array(text(name) + array(results) + b"\0" for name, results in topics)
    return responses + struct.pack(">i", 0) + tags


def leaders(endpoints: Iterable[bytes]) -> bytes:
    """The tagged field with leaders' endpoints of a Produce response."""
    field = array(endpoints)
    return b"\x01\x00" + uvarint(len(field)) + field


def answering(body: bytes | Callable[[], bytes]) -> Answer:
    """Answer any request with these bytes."""

    def answer(_broker: ScriptedBroker, request: ReceivedRequest) -> bytes:
        data = body() if callable(body) else body
        message = request.correlation_id.to_bytes(4, "big") + b"\0" + data
        return len(message).to_bytes(4, "big") + message

    return answer
