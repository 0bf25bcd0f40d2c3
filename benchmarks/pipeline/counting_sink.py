"""A broker that answers Produce at once and keeps nothing: the other end of producer benchmarks.

One thread, sockets by way of a selector; Produce is parsed by hand just far enough to name the
partitions in the answer, everything else goes through kio. It acknowledges what it never stored, so
it is good for measuring producers and for nothing else.

    python -m benchmarks.pipeline.counting_sink --partitions 6      # prints its address
"""

from __future__ import annotations

import argparse
import selectors
import socket
import struct
from typing import Any
from uuid import UUID, uuid5

from kprod.broker.messages import request_schema, response_schema

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
VERSIONS = {PRODUCE: (0, 9), METADATA: (0, 12), API_VERSIONS: (0, 3), INIT_PRODUCER_ID: (0, 4)}
FLEXIBLE_PRODUCE = 9
RECEIVE_BYTES = 4 * 1024 * 1024
NAMESPACE = UUID(int=0x6B70726F64)


class Sink:
    """Topics exist when they are named, each with ``partitions`` partitions."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self.port: int = self._listener.getsockname()[1]
        self._chunk = bytearray(RECEIVE_BYTES)

    def serve(self) -> None:
        """Answer until the process ends."""
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    peer, _ = self._listener.accept()
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._selector.register(peer, selectors.EVENT_READ, bytearray())
                else:
                    self._read(key.fileobj, key.data)

    def _read(self, peer: Any, held: bytearray) -> None:
        try:
            count = peer.recv_into(self._chunk)
        except ConnectionError:
            count = 0
        if not count:
            self._selector.unregister(peer)
            peer.close()
            return
        held += memoryview(self._chunk)[:count]
        answers, at = [], 0
        while len(held) - at >= 4:
            size = int.from_bytes(held[at : at + 4], "big")
            if len(held) - at < 4 + size:
                break
            with memoryview(held) as view:
                answers.append(self._answer(bytes(view[at + 4 : at + 4 + size])))
            at += 4 + size
        if at:
            del held[:at]
            peer.sendall(b"".join(answers))

    def _answer(self, frame: bytes) -> bytes:
        api, version, correlation_id = struct.unpack_from(">hhi", frame)
        if api == PRODUCE:
            return _produced(frame, version, correlation_id)
        low, high = VERSIONS[api]
        if api == API_VERSIONS and not low <= version <= high:
            return self._encode(api, 0, correlation_id, self._api_versions(35))
        _, request = request_schema(api, version).decode(frame)
        values: dict[str, Any] = {"producer_id": 4000, "producer_epoch": 0}
        if api == API_VERSIONS:
            values = self._api_versions(0)
        elif api == METADATA:
            values = self._metadata(request)
        return self._encode(api, version, correlation_id, values)

    @staticmethod
    def _encode(api: int, version: int, correlation_id: int, values: dict[str, Any]) -> bytes:
        return response_schema(api, version).encode({"correlation_id": correlation_id}, values)

    @staticmethod
    def _api_versions(error_code: int) -> dict[str, Any]:
        ranges = [
            {"api_key": api, "min_version": low, "max_version": high}
            for api, (low, high) in VERSIONS.items()
        ]
        return {"error_code": error_code, "api_keys": ranges}

    def _metadata(self, request: Any) -> dict[str, Any]:
        names = [topic.name for topic in request.topics or ()]
        partitions = [
            {
                "partition_index": p,
                "leader_id": 1,
                "leader_epoch": 0,
                "replica_nodes": [1],
                "isr_nodes": [1],
            }
            for p in range(self._partitions)
        ]
        topics = [
            {"name": name, "topic_id": uuid5(NAMESPACE, name), "partitions": partitions}
            for name in names
        ]
        brokers = [{"node_id": 1, "host": "127.0.0.1", "port": self.port}]
        return {"brokers": brokers, "cluster_id": "sink", "controller_id": 1, "topics": topics}


def _produced(frame: bytes, version: int, correlation_id: int) -> bytes:
    """The acknowledgement of every partition in a Produce request."""
    flexible = version >= FLEXIBLE_PRODUCE
    at = 8 + 2 + max(0, struct.unpack_from(">h", frame, 8)[0])  # client id
    at += 1 + 1 if flexible else 2  # header tags and null transactional id
    at += 6  # acks, timeout
    topics, at = _count(frame, at, flexible)
    body = bytearray(struct.pack(">ii", 0, correlation_id))
    body += b"\0" if flexible else b""
    body += _encoded_count(topics, flexible)
    for _ in range(topics):
        size, start = _name(frame, at, flexible)
        body += frame[at : start + size]
        at = start + size
        count, at = _count(frame, at, flexible)
        body += _encoded_count(count, flexible)
        for _ in range(count):
            body += frame[at : at + 4]
            size, at = _size(frame, at + 4, flexible)
            at += size + flexible
            body += (
                _ACKNOWLEDGED[flexible]
                if version >= 8
                else _ACKNOWLEDGED_BEFORE_8[: 18 + 8 * (version >= 5)]
            )
        at += flexible
        body += b"\0" if flexible else b""
    body += b"\0\0\0\0" + (b"\0" if flexible else b"")
    struct.pack_into(">i", body, 0, len(body) - 4)
    return bytes(body)


_ACKNOWLEDGED_BEFORE_8 = struct.pack(">hqqq", 0, 0, -1, 0)
_ACKNOWLEDGED = {
    True: _ACKNOWLEDGED_BEFORE_8 + b"\x01\x00\x00",
    False: _ACKNOWLEDGED_BEFORE_8 + b"\0\0\0\0\xff\xff",
}


def _uvarint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _count(frame: bytes, at: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        value, at = _uvarint(frame, at)
        return value - 1, at
    return struct.unpack_from(">i", frame, at)[0], at + 4


_size = _count


def _name(frame: bytes, at: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        value, start = _uvarint(frame, at)
        return value - 1, start
    return struct.unpack_from(">h", frame, at)[0], at + 2


def _encoded_count(count: int, flexible: bool) -> bytes:
    if not flexible:
        return struct.pack(">i", count)
    encoded, rest = bytearray(), count + 1
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def main() -> None:
    """Run a sink in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=6)
    sink = Sink(parser.parse_args().partitions)
    print(f"127.0.0.1:{sink.port}", flush=True)
    sink.serve()


if __name__ == "__main__":
    main()
