"""The counting sink: what it acknowledges is what it got, and it got what was sent."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.sink.sink_process import SinkProcess
from kprod import KafkaProducer

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def sink() -> Iterator[SinkProcess]:
    with SinkProcess(partitions=5) as running:
        yield running


def added(sink: SinkProcess, before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in flat(sink).items()}


def flat(sink: SinkProcess) -> dict[str, int]:
    counts = sink.counts()
    return {**counts.pop("batches_by_codec"), **counts}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_is_counted_by_its_codec(sink: SinkProcess, codec: str) -> None:
    before = flat(sink)
    options: Any = {} if codec == "none" else {"compression_type": codec}
    with KafkaProducer(bootstrap_servers=sink.bootstrap_servers, **options) as producer:
        for number in range(1_000):
            producer.send("counted", b"v" * 300, b"%d" % number)
        assert producer.flush(30).failed == 0
        assert producer.partitions_for("counted") == set(range(5))
    counted = added(sink, before)
    assert (counted["records"], counted["malformed"]) == (1_000, 0)
    assert counted[codec] == counted["batches"] == counted["idempotent_batches"] > 0


def test_a_request_larger_than_its_buffer_is_read_whole(sink: SinkProcess) -> None:
    before = flat(sink)
    options: Any = {"max_request_size": 8_000_000, "linger_ms": 0}
    with KafkaProducer(bootstrap_servers=sink.bootstrap_servers, **options) as producer:
        for _ in range(3):
            producer.send("large", bytes(5_000_000)).get(30)
    counted = added(sink, before)
    assert (counted["records"], counted["malformed"]) == (3, 0)
    assert counted["batch_bytes"] > 15_000_000


def test_acks_0_is_not_answered(sink: SinkProcess) -> None:
    before = flat(sink)
    options: Any = {"acks": 0, "enable_idempotence": False}
    with KafkaProducer(bootstrap_servers=sink.bootstrap_servers, **options) as producer:
        for _ in range(100):
            producer.send("unanswered", b"v")
        assert producer.flush(30).failed == 0
    assert added(sink, before)["idempotent_batches"] == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        struct.pack(">hhi", 0, 9, 1),
        struct.pack(">hhih", 0, 9, 1, 500) + b"client",
        struct.pack(">hhih", 0, 99, 1, -1),
        struct.pack(">hhih", 77, 0, 1, -1),
        struct.pack(">hhih", 0, 9, 1, -1) + b"\xff" * 40,
    ],
    ids=["empty", "cut", "long name", "version", "api", "lengths"],
)
def test_nonsense_ends_the_connection_and_nothing_else(sink: SinkProcess, frame: bytes) -> None:
    host, _, port = sink.bootstrap_servers.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as peer:
        peer.sendall(struct.pack(">i", len(frame)) + frame)
        assert peer.recv(100) == b""
    assert sink.counts()["connections"] > 0
