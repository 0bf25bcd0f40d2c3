"""Networks that break connections off, and slow ones: whatever batches had grown to gets through.

``KPROD_CAMPAIGN=long`` goes through cuts and rates of many sizes, to Apache Kafka, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kprod import KafkaProducer
from kprod_ext.futures import FutureRecordMetadata
from tests.fault.through_proxy import through_proxy
from tests.support.broker_process import BrokerProcess
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered
from tests.support.poor_network import PoorNetwork

pytestmark = pytest.mark.full

TOPIC = "poor-network"
PARTITIONS = 4
RECORDS = 40_000
BATCH_SIZE = 16_384


def send_all(producer: KafkaProducer, first: int, count: int) -> list[FutureRecordMetadata]:
    return [
        producer.send(TOPIC, numbered(number, 60), partition=number % PARTITIONS)
        for number in range(first, first + count)
    ]


@pytest.mark.parametrize("mean_bytes", [40_000, 100_000])
def test_what_no_connection_would_carry_is_not_grown_to(tmp_path: Path, mean_bytes: int) -> None:
    with (
        BrokerProcess(tmp_path, {TOPIC: PARTITIONS}) as broker,
        PoorNetwork(broker.port, mean_bytes=mean_bytes) as network,
        through_proxy(network.port, batch_size=BATCH_SIZE, linger_ms=2) as producer,
    ):
        futures = send_all(producer, 0, RECORDS)
        report = producer.flush(60)
        assert report.failed == 0
        places = [future.get(0) for future in futures]
        found = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS)
    check_numbered(found, places, PARTITIONS)
    assert network.cuts > 10


def test_what_grew_before_the_network_turned_bad_gets_through(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path, {TOPIC: PARTITIONS}) as broker,
        PoorNetwork(broker.port) as network,
        through_proxy(network.port, batch_size=BATCH_SIZE, linger_ms=2) as producer,
    ):
        futures = send_all(producer, 0, RECORDS)
        producer.flush(60)
        network.mean_bytes = 70_000  # it carries a batch of 256 KiB once in 40 attempts
        futures += send_all(producer, len(futures), RECORDS)
        report = producer.flush(60)
        assert report.failed == 0
        places = [future.get(0) for future in futures]
        found = read_back(broker.bootstrap_servers, TOPIC, PARTITIONS)
    check_numbered(found, places, PARTITIONS)
    assert network.cuts > 10
