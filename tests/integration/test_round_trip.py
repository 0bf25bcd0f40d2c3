"""librdkafka's consumer reads kprod's records back unchanged, also those of split batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.types import Header
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.jars import NEWEST, OLDER
from tests.support.brokers import BROKERS
from tests.support.committed_records import Stored, read_back
from tests.support.topic_admin import TopicAdmin

PARTITIONS = 4
TOPIC = "round-trip"
APACHE_KAFKA = {f"kafka-{version}": version for version in (NEWEST, OLDER)}

QUICK = {"embedded", f"kafka-{NEWEST}"}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name in QUICK else pytest.mark.full)
        for name in (*BROKERS, *APACHE_KAFKA)
    ],
)
def bootstrap(request: pytest.FixtureRequest, shared_kafka: SharedKafka) -> Iterator[str]:
    version = APACHE_KAFKA.get(request.param)
    if version is None:
        with BROKERS[request.param]({TOPIC: PARTITIONS}) as address:
            yield address
        return
    address = shared_kafka(version).bootstrap_servers
    TopicAdmin(address).create(TOPIC, PARTITIONS)
    yield address


RECORDS: list[tuple[bytes | None, bytes | None, list[Header]]] = [
    (b"key", b"value", []),
    (None, b"no key", []),
    (b"no value", None, []),
    (b"", b"empty key", []),
    (b"empty value", b"", []),
    (None, None, []),
    (b"", b"", []),
    (b"headers", b"v", [("h1", b"x"), ("h2", None), ("h1", b""), ("größe", b"\x00\xff")]),
    (bytes(range(256)), bytes(range(256)), [("binary", bytes(range(256)))]),
    (b"large", bytes(1_000_000), []),
]


def test_every_kind_of_record_is_read_back_unchanged(bootstrap: str) -> None:
    sent: dict[tuple[int, int], Stored] = {}
    with KafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number, (key, value, headers) in enumerate(RECORDS * 3):
            partition, timestamp = number % PARTITIONS, 1_700_000_000_000 + number
            future = producer.send(
                TOPIC, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp
            )
            metadata = future.get(timeout=30)
            assert metadata.partition == partition
            stored = Stored(partition, metadata.offset, timestamp, key, value, tuple(headers))
            sent[partition, metadata.offset] = stored

    found = read_back(bootstrap, TOPIC, PARTITIONS, at_least=len(sent))
    assert {(r.partition, r.offset): r for r in found} == sent


BROKERS_LIMIT = 1_048_588
LARGE_BATCHES: Any = {"batch_size": 6_000_000, "max_request_size": 8_000_000, "linger_ms": 2_000}


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_of_a_split_batch_arrive_in_order(codec: Any) -> None:
    noise = random.Random(7)  # incompressible, so that the batch stays too large
    values = [noise.randbytes(8_000) for _ in range(600)]
    headers = [("n", b"x"), ("null", None)]
    with (
        EmbeddedBroker(topics={"wide": 1}) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, compression_type=codec, **LARGE_BATCHES
        ) as producer,
    ):
        futures = [
            producer.send("wide", value, key=b"%d" % n, headers=headers, timestamp_ms=n + 1)
            for n, value in enumerate(values)
        ]
        report = producer.flush(timeout=40)
        results = [future.get(timeout=0) for future in futures]
        metrics = producer.metrics()["producer-metrics"]
        found = read_back(broker.bootstrap_servers, "wide", 1)

    assert metrics["batch-split-total"] > 1
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert (report.delivered, report.failed, report.pending) == (len(values), 0, 0)
    assert [result.offset for result in results] == list(range(len(values)))
    assert [(r.timestamp, r.key, r.value) for r in found] == [
        (n + 1, b"%d" % n, value) for n, value in enumerate(values)
    ]
    assert {r.headers for r in found} == {tuple(headers)}
