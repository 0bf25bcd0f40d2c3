"""A broker that acknowledges Produce at once, counts what it got, and keeps nothing.

It acknowledges what it never stored, so it is good for measuring producers and for nothing else.
What producers wait for is answered by ``sink.c``, compiled when it is first used; the rest
(ApiVersions, Metadata, InitProducerId) goes through kio here. Topics exist when they are named.

    python -m benchmarks.sink.counting_sink --partitions 6

prints its address; after that, for every line it reads from standard input, a line of JSON with
what it counted since it began. It ends with its standard input.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from benchmarks.compiled import compiled
from kprod.broker.protocol.messages import request_schema, response_schema

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
API_VERSIONS, INIT_PRODUCER_ID = 18, 22
ANSWERED = {PRODUCE: (3, 9), METADATA: (0, 12), API_VERSIONS: (0, 3), INIT_PRODUCER_ID: (0, 4)}
PROMISED = {FETCH: (4, 11), LIST_OFFSETS: (1, 5), FIND_COORDINATOR: (0, 2)}
"""What no producer asks for, but librdkafka wants to see before it uses lz4, zstd or magic 2."""

SOURCE = Path(__file__).with_name("sink.c")
TLS_FLAGS = ("-DSINK_TLS", "-lssl", "-lcrypto")
CIPHER = "TLS_AES_256_GCM_SHA384"
UNSUPPORTED_VERSION = 35
NAMESPACE = UUID(int=0x6B70726F64)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LISTEN_BACKLOG = 64

_ANSWER = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
)


class Counts(ctypes.Structure):
    """``sink_counts`` of ``sink.c``."""

    _fields_ = (
        ("records", ctypes.c_int64),
        ("batches", ctypes.c_int64),
        ("requests", ctypes.c_int64),
        ("batch_bytes", ctypes.c_int64),
        ("idempotent_batches", ctypes.c_int64),
        ("batches_by_codec", ctypes.c_int64 * 8),
        ("connections", ctypes.c_int64),
        ("malformed", ctypes.c_int64),
    )

    def as_json(self) -> dict[str, Any]:
        """Each count by name."""
        names = [name for name, *_ in self._fields_ if name != "batches_by_codec"]
        by_codec = dict(zip(CODECS, self.batches_by_codec, strict=False))
        return {name: getattr(self, name) for name in names} | {"batches_by_codec": by_codec}


class Sink:
    """One listening socket. Every topic has ``partitions`` partitions.

    ``tls``: a PEM file of certificate and key; it then ends TLS 1.3, with the cipher ``CIPHER``.
    ``advertised``: the port in its metadata, if something stands between the clients and itself.
    """

    def __init__(
        self, partitions: int, tls: str | None = None, advertised: int | None = None
    ) -> None:
        self._partitions = partitions
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=LISTEN_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._advertised = advertised or self.port
        self.counts = Counts()
        self._told: dict[tuple[int, tuple[str, ...]], bytes] = {}

    def serve(self) -> None:
        """Answer until the process ends. Raises OSError when the system does not let it."""
        library = ctypes.CDLL(str(compiled(SOURCE, *(() if self._tls is None else TLS_FLAGS))))
        if self._tls is not None and not library.sink_tls(self._tls.encode(), CIPHER.encode()):
            raise OSError(f"OpenSSL does not take {self._tls} and {CIPHER}")
        answer = _ANSWER(self._answer)
        error = library.sink_serve(self._listener.fileno(), answer, ctypes.byref(self.counts))
        raise OSError(-error, os.strerror(-error))

    def _answer(self, frame: int, size: int, answer: int, room: int) -> int:
        """Write the answer to a request that is not Produce; its size, 0 to close the connection"""
        made = self._encoded(ctypes.string_at(frame, size))
        if made is None or len(made) > room:
            return 0
        ctypes.memmove(answer, made, len(made))
        return len(made)

    def _encoded(self, frame: bytes) -> bytes | None:
        api, version, correlation_id = struct.unpack_from(">hhi", frame)
        if api not in ANSWERED:
            return None
        low, high = ANSWERED[api]
        if api == API_VERSIONS and not low <= version <= high:
            return _encode(api, 0, correlation_id, _api_versions(UNSUPPORTED_VERSION))
        _, request = request_schema(api, version).decode(frame)
        if api == METADATA:
            return self._metadata_frame(version, correlation_id, request)
        values = {"producer_id": 4000, "producer_epoch": 0}
        if api == API_VERSIONS:
            values = _api_versions(0)
        return _encode(api, version, correlation_id, values)

    def _metadata_frame(self, version: int, correlation_id: int, request: Any) -> bytes:
        """Made once for the same topics: of 100,000 partitions it takes seconds, and all wait."""
        names = tuple(topic.name for topic in request.topics or ())
        if (version, names) not in self._told:
            self._told[version, names] = _encode(METADATA, version, 0, self._metadata(names))
        frame = self._told[version, names]
        return frame[:4] + struct.pack(">i", correlation_id) + frame[8:]

    def _metadata(self, names: Sequence[str]) -> dict[str, Any]:
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
        brokers = [{"node_id": 1, "host": "127.0.0.1", "port": self._advertised}]
        return {"brokers": brokers, "cluster_id": "sink", "controller_id": 1, "topics": topics}


def _encode(api: int, version: int, correlation_id: int, values: dict[str, Any]) -> bytes:
    return response_schema(api, version).encode({"correlation_id": correlation_id}, values)


def _api_versions(error_code: int) -> dict[str, Any]:
    ranges = [
        {"api_key": api, "min_version": low, "max_version": high}
        for api, (low, high) in sorted((ANSWERED | PROMISED).items())
    ]
    return {"error_code": error_code, "api_keys": ranges}


def _tell_counts(counts: Counts) -> None:
    for _ in sys.stdin:
        print(json.dumps(counts.as_json()), flush=True)
    os._exit(0)  # whoever started it is gone; the main thread is in C


def main() -> None:
    """Run a sink in this process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--tls", metavar="PEM", help="certificate and key: end TLS 1.3")
    parser.add_argument("--advertised", type=int, help="the port that clients are told to come to")
    options = parser.parse_args()
    sink = Sink(options.partitions, options.tls, options.advertised)
    threading.Thread(target=_tell_counts, args=(sink.counts,), daemon=True).start()
    print(f"127.0.0.1:{sink.port}", flush=True)
    sink.serve()


if __name__ == "__main__":
    main()
