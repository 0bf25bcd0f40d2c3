"""Batches the broker finds too large are cut until they fit; order and futures survive."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from tests.support.judge import read_back

BROKERS_LIMIT = 1_048_588
GENEROUS: Any = {"batch_size": 6_000_000, "max_request_size": 8_000_000, "linger_ms": 2_000}


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_of_a_batch_that_was_too_large_arrive_in_order(codec: Any) -> None:
    noise = random.Random(7)  # so that compression does not make the batch fit by itself
    values = [noise.randbytes(8_000) for _ in range(600)]
    headers = [("n", b"x"), ("null", None)]
    with (
        EmbeddedBroker(topics={"wide": 1}) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, compression_type=codec, **GENEROUS
        ) as producer,
    ):
        futures = [
            producer.send("wide", value, key=b"%d" % n, headers=headers, timestamp_ms=n + 1)
            for n, value in enumerate(values)
        ]
        report = producer.flush(timeout=40)
        places = [future.get(timeout=0) for future in futures]
        metrics = producer.metrics()["producer-metrics"]
        found = read_back(broker.bootstrap_servers, "wide", 1)

    assert metrics["batch-split-total"] > 1
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert (report.delivered, report.failed, report.pending) == (len(values), 0, 0)
    assert [place.offset for place in places] == list(range(len(values)))
    assert [(r.timestamp, r.key, r.value) for r in found] == [
        (n + 1, b"%d" % n, value) for n, value in enumerate(values)
    ]
    assert {r.headers for r in found} == {tuple(headers)}
