"""Growing beside batches of ``batch_size``: all arrives, in at most twice the time.

``KPROD_CAMPAIGN=long`` goes through breaks and rates of many sizes, to Apache Kafka, too, and
judges times; else one of each.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kprod import RecordMetadata
from tests.fault.through_proxy import through_proxy
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.broker_process import BrokerProcess
from tests.support.judge import read_back
from tests.support.numbered_records import check_numbered, numbered
from tests.support.poor_network import PoorNetwork
from tests.support.topic_admin import TopicAdmin

pytestmark = pytest.mark.full

LONG = os.environ.get("KPROD_CAMPAIGN") == "long"
PARTITIONS = 4
BATCH_SIZE = 16_384
TURN_SECONDS = 110
"""Within ``delivery_timeout_ms``: what has not arrived then would not."""
TIMES = 2.0


class Network(NamedTuple):
    """Where connections break in the mean, or how many bytes a second there are, and a load.

    ``records`` take some seconds of it.
    """

    name: str
    mean_bytes: int
    rate: int
    records: int


BREAKS = [
    Network("breaks-10000", 10_000, 0, 20_000),
    Network("breaks-40000", 40_000, 0, 100_000),
    Network("breaks-100000", 100_000, 0, 200_000),
    Network("breaks-1000000", 1_000_000, 0, 400_000),
]
RATES = [
    Network("20-kB-a-second", 0, 20_000, 4_000),
    Network("100-kB-a-second", 0, 100_000, 20_000),
    Network("1-MB-a-second", 0, 1_000_000, 150_000),
]
NETWORKS = (
    [*BREAKS, *RATES]
    if LONG
    else [BREAKS[1]._replace(records=20_000), RATES[2]._replace(records=40_000)]
)
RATED: dict[str, Any] = {"request_timeout_ms": 5_000, "delivery_timeout_ms": 120_000}
"""The slowest link carries 100,000 bytes within a request's time: less than a batch may grow to."""


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[str, int]]:
    with BrokerProcess(folder, {}) as broker:
        yield broker.bootstrap_servers, broker.port


@contextmanager
def apache_kafka(folder: Path) -> Iterator[tuple[str, int]]:
    with ApacheKafka(folder, NEWEST) as broker:
        yield broker.bootstrap_servers, broker.front_port


BROKERS = {"embedded": embedded, "apache-kafka": apache_kafka} if LONG else {"embedded": embedded}


class Turn(NamedTuple):
    seconds: float
    cuts: int


def turn(network: Network, servers: str, port: int, topic: str, **options: Any) -> Turn:
    """Send it all through the network, and check what lies in the log."""
    TopicAdmin(servers).create(topic, PARTITIONS)
    with (
        PoorNetwork(port, mean_bytes=network.mean_bytes, rate=network.rate) as line,
        through_proxy(line.port, batch_size=BATCH_SIZE, linger_ms=2, **options) as producer,
    ):
        started = time.monotonic()
        futures = [
            producer.send(topic, numbered(number, 60), partition=number % PARTITIONS)
            for number in range(network.records)
        ]
        report = producer.flush(TURN_SECONDS)
        seconds = time.monotonic() - started
        assert (report.failed, report.pending) == (0, 0), report
        places: list[RecordMetadata] = [future.get(0) for future in futures]
        cuts = line.cuts
    check_numbered(read_back(servers, topic, PARTITIONS), places, PARTITIONS)
    return Turn(seconds, cuts)


@pytest.mark.timeout(TURN_SECONDS * 7)
@pytest.mark.parametrize("network", NETWORKS, ids=[network.name for network in NETWORKS])
@pytest.mark.parametrize("broker", BROKERS)
def test_growing_costs_nothing_in_a_poor_network(
    tmp_path: Path, broker: str, network: Network
) -> None:
    options = RATED if network.rate else {}
    # Where connections break by dice, one turn says little of the time: pairs, in either order.
    pairs = 3 if LONG and network.mean_bytes else 1
    ratios = []
    with BROKERS[broker](tmp_path) as (servers, port):
        for pair in range(pairs):
            took: dict[str, Turn] = {}
            for side in ("bounded", "grown")[:: 1 if pair % 2 else -1]:
                bound = {"batch_max_size": BATCH_SIZE} if side == "bounded" else {}
                took[side] = turn(network, servers, port, f"{side}-{pair}", **bound, **options)
            ratios.append(took["grown"].seconds / took["bounded"].seconds)
            print(f"{broker}, {network.name}: {network.records} records, {took}")
    if LONG:
        assert statistics.median(ratios) <= TIMES
